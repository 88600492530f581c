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
_BACKFILL: Final = "ragtrace/backfill/sessions.py"
_EARLIER: Final = "ragtrace/conversations/earlier.py"
_BACKFILL_TESTS: Final = "tests/integration/cli/test_backfill_sessions.py"
_EARLIER_TESTS: Final = "tests/unit/conversations/test_earlier.py"
_BY_TIME: Final = "test_the_last_turns_before_the_answer_count_in_order_of_time_whenever_they_came"
_INDEX: Final = "ragtrace/answers/index/sessions.py"
_PAGE_TESTS: Final = "tests/integration/collector/test_ui_sessions.py"

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
        breaks="an answer is worded by turns that came after it",
        file=_EARLIER,
        old="    before = [turn for turn in in_order(list(turns)) if (turn.start_ns, *turn.key) < own]\n",
        new="    before = [turn for turn in in_order(list(turns)) if turn.key != own[1:]]\n",
        tests=(f"{_EARLIER_TESTS}::{_BY_TIME}",),
    ),
    Mutant(
        promise="conversations",
        breaks="a revised session is in the list of the page twice",
        file=_INDEX,
        old="*as_they_are, int(superseded.fetchone() is None)))",
        new="*as_they_are, 1))",
        tests=(f"{_PAGE_TESTS}::test_a_revised_session_counts_once_whichever_span_came_first",),
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
    Mutant(
        promise="conversations",
        breaks="the turns of forgotten sessions stay",
        file="collector/ragtrace_collector/store/sessions.py",
        old='    db.executemany("DELETE FROM session_turn WHERE session = ?", found)\n',
        new="",
        tests=(
            "tests/conformance/test_store_sessions.py::test_the_turns_of_a_forgotten_session_are_in_no_later_one",
        ),
    ),
)
