"""Conversations: order-proof, revised by late turns, and no fault without evidence."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_FINDINGS: Final = "ragtrace/conversations/findings.py"
_STAGE: Final = "collector/ragtrace_collector/sessions/stage.py"
_FINDINGS_TESTS: Final = "tests/unit/conversations/test_findings.py"
_STAGE_TESTS: Final = "tests/integration/collector/test_sessions.py"
_BACKFILL: Final = "ragtrace/backfill/pipeline.py"
_BACKFILL_TESTS: Final = "tests/integration/cli/test_backfill_sessions.py"

MUTANTS: Final = (
    Mutant(
        promise="conversations",
        breaks="back-fill judges a session again whose span is in its traces",
        file=_BACKFILL,
        old="        if any(span.span_id == span_id_of(name, turns, unchecked=span.unchecked) for span in written):\n",
        new="        if written and not turns:\n",
        tests=(f"{_BACKFILL_TESTS}::test_a_second_run_and_a_collectors_span_are_not_judged_again",),
    ),
    Mutant(
        promise="conversations",
        breaks="turns that could not be checked count as checked",
        file=_FINDINGS,
        old="        is_known = self.decided == len(self.turns) and not self.unchecked\n",
        new="        is_known = self.decided == len(self.turns)\n",
        tests=(
            f"{_FINDINGS_TESTS}::test_a_turn_that_could_not_be_checked_leaves_the_session_open_but_not_a_fault",
        ),
    ),
    Mutant(
        promise="conversations",
        breaks="a session without end is never told",
        file=_STAGE,
        old="            opened_before_ns=now_ns - nanoseconds(config.max_length),\n",
        new="            opened_before_ns=0,\n",
        tests=(f"{_STAGE_TESTS}::test_a_session_without_end_is_told_when_it_is_old",),
    ),
)
