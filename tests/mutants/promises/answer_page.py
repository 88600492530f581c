"""The page of one answer shows the right claims and evidence, nothing of others, and no recorded address."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_MACROS: Final = "collector/ragtrace_collector/ui/templates/answer_macros.html"
_TESTS: Final = "tests/integration/collector/test_answer_page.py"

MUTANTS: Final = (
    Mutant(
        promise="answer page",
        breaks="an answer is its reader's, whoever the place says it is of",
        file="collector/ragtrace_collector/ui/security.py",
        old="if opened.key != key or owners - {own}:",
        new="if opened.key != key:",
        tests=(f"{_TESTS}::test_a_source_that_hands_out_another_tenants_answer_is_not_believed",),
    ),
    Mutant(
        promise="answer page",
        breaks="a recorded text is markup",
        file=_MACROS,
        old="{{ text[:most] }}",
        new="{{ text[:most]|safe }}",
        tests=(f"{_TESTS}::test_hostile_content_in_every_field_stays_text",),
    ),
)
