"""Who may send and read, and what is whose."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_PAGES: Final = "collector/ragtrace_collector/web/server.py"
_TENANTS_TESTS: Final = "tests/attack/test_tenants.py"

MUTANTS: Final = (
    Mutant(
        promise="tenants",
        breaks="traces are known by their ids alone, whoever sends",
        file="collector/ragtrace_collector/store/records.py",
        old='return f"{trace_id}{BEHIND_ID}{tenant}" if tenant else trace_id',
        new="return trace_id",
        tests=(f"{_TENANTS_TESTS}::test_spans_of_two_tenants_under_one_trace_id_are_kept_apart",),
    ),
    Mutant(
        promise="tenants",
        breaks="a tenant's token reads the answers of all tenants",
        file=_PAGES,
        old="request.state.tenant = sender.tenant if sender else None",
        new="request.state.tenant = None",
        tests=(f"{_TENANTS_TESTS}::test_a_token_that_reads_for_a_tenant_reads_nothing_of_another",),
    ),
    Mutant(
        promise="tenants",
        breaks="a search for words opens the answers of all tenants",
        file="collector/ragtrace_collector/ui/answers.py",
        old="        without_text = replace(chosen, text=None)\n",
        new="        without_text = AnswerFilter()\n",
        tests=(
            "tests/integration/collector/test_ui_access.py::test_a_search_for_words_opens_the_tenants_own_answers_alone",
        ),
    ),
)
