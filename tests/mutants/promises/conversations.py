"""Conversations: order-proof, revised by late turns, and no fault without evidence."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_FINDINGS: Final = "ragtrace/conversations/findings.py"
_STORE: Final = "collector/ragtrace_collector/store/sessions.py"
_STAGE: Final = "collector/ragtrace_collector/sessions/stage.py"
_FINDINGS_TESTS: Final = "tests/unit/conversations/test_findings.py"
_STORE_TESTS: Final = "tests/conformance/test_store_sessions.py"
_STAGE_TESTS: Final = "tests/integration/collector/test_sessions.py"

MUTANTS: Final = (
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
        breaks="an answer is blamed by one that came after it",
        file=_FINDINGS,
        old="            if place.get((link.trace_id, link.span_id), len(place)) < place[key]\n",
        new="            if (link.trace_id, link.span_id) in place\n",
        tests=(f"{_FINDINGS_TESTS}::test_a_link_to_a_later_turn_or_to_none_at_all_is_no_fault",),
    ),
    Mutant(
        promise="conversations",
        breaks="a turn that comes while its session is judged is left out for good",
        file=_STORE,
        old='                " WHERE tenant = ? AND name = ? AND revision = ? AND is_ended = 0",\n',
        new='                " WHERE tenant = ? AND name = ? AND ? >= 0 AND is_ended = 0",\n',
        tests=(f"{_STORE_TESTS}::test_a_turn_that_comes_meanwhile_is_not_left_out",),
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
