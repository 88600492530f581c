"""Each judged answer is in the index once, as it was judged, and leaves it in time."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_STORE: Final = "collector/ragtrace_collector/store/store.py"
_RETENTION: Final = "collector/ragtrace_collector/store/retention.py"
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
        breaks="senders are refused because of rows",
        file=_RETENTION,
        old="        or forget_rows(db, before_ns=_ALWAYS_NS, most_rows=0)\n",
        new="",
        tests=(f"{_TESTS}::test_rows_go_before_a_sender_is_refused",),
    ),
)
