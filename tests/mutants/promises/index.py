"""Each judged answer is in the index once, as it was judged, and leaves it in time."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_JUDGED: Final = "collector/ragtrace_collector/store/_judged.py"
_STORE: Final = "collector/ragtrace_collector/store/store.py"
_RETENTION: Final = "collector/ragtrace_collector/store/retention.py"
_READER: Final = "collector/ragtrace_collector/store/reader.py"
_TESTS: Final = "tests/conformance/test_store_index.py"

MUTANTS: Final = (
    Mutant(
        promise="index",
        breaks="a judged answer has no row",
        file=_STORE,
        old="            if kept is not None:\n",
        new="            if False:\n",
        tests=(f"{_TESTS}::test_a_judged_answer_has_a_row_and_its_carrier",),
    ),
    Mutant(
        promise="index",
        breaks="scores on the answer span stay valid beside the carrier that supersedes them",
        file=_JUDGED,
        old="    return str(found[0]) if found else named\n",
        new="    return named\n",
        tests=(f"{_TESTS}::test_scores_on_the_answer_span_are_superseded_by_the_next_carrier",),
    ),
    Mutant(
        promise="index",
        breaks="carriers outlive the spans of their trace",
        file=_RETENTION,
        old="    forget_carriers(db, found)\n",
        new="",
        tests=(f"{_TESTS}::test_carriers_go_with_the_spans_and_rows_stay",),
    ),
    Mutant(
        promise="index",
        breaks="senders are refused because of rows",
        file=_RETENTION,
        old="        or forget_rows(db, before_ns=_ALWAYS_NS, most_rows=0)\n",
        new="",
        tests=(f"{_TESTS}::test_rows_go_before_a_sender_is_refused",),
    ),
    Mutant(
        promise="index",
        breaks="late feedback does not reach its row",
        file=_STORE,
        old="            _judged.note(db, trace_id, feedback)\n",
        new="",
        tests=(f"{_TESTS}::test_feedback_is_on_the_row_whenever_it_comes",),
    ),
    Mutant(
        promise="index",
        breaks="a tenant opens the answers of another",
        file=_READER,
        old="    own = [key for key in keys if tenant_of(key) == tenant]\n",
        new="    own = list(keys)\n",
        tests=(f"{_TESTS}::test_an_answer_of_a_tenant_is_apart_from_that_of_another",),
    ),
)
