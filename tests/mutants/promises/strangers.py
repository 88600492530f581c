"""What strangers say, ask for and send has bounds."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CALLS: Final = "ragtrace/judge/calls.py"
_WAITS_TESTS: Final = "tests/attack/test_waits.py"
_FAILED_TESTS: Final = "tests/attack/test_failed_calls.py"
_USAGE_TESTS: Final = "tests/attack/test_usage.py"

MUTANTS: Final = (
    Mutant(
        promise="waits",
        breaks="a stranger may ask for a wait of any length",
        file="ragtrace/durations.py",
        old="return float(min(max(0, seconds), LONGEST_WAIT_S))",
        new="return float(max(0, seconds))",
        tests=("tests/attack/test_waits.py::test_any_text_asks_for_a_wait_that_has_an_end_or_for_none",),
    ),
    Mutant(
        promise="usage",
        breaks="less than no tokens makes room in the budget",
        file=_CALLS,
        old="        if reported < 0:\n",
        new="        if False:\n",
        tests=(f"{_USAGE_TESTS}::test_less_than_none_does_not_make_room",),
    ),
    Mutant(
        promise="usage",
        breaks="any number of tokens is believed",
        file=_CALLS,
        old="        return int(min(reported, most))\n",
        new="        return int(told)\n",
        tests=(f"{_USAGE_TESTS}::test_a_request_that_says_it_took_all_leaves_room_for_others",),
    ),
    Mutant(
        promise="budget",
        breaks="requests to a judge are not counted as they leave",
        file=_CALLS,
        old="            for watcher in _WATCHERS.get():\n",
        new="            for watcher in ():\n",
        tests=("tests/attack/test_failed_calls.py::test_no_storm_of_failures_passes_a_limit_of_calls",),
    ),
    Mutant(
        promise="waits",
        breaks="a judge is left alone for as long as it asks",
        file="collector/ragtrace_collector/judge/breaker.py",
        old="(min(delay_ns, pause_ns) if pause_ns else delay_ns)",
        new="max(delay_ns, pause_ns)",
        tests=(f"{_WAITS_TESTS}::test_a_judge_that_asks_for_ever_is_probed_and_used_as_soon_as_it_answers",),
    ),
    Mutant(
        promise="waits",
        breaks="between two probes nobody says that nothing is judged",
        file="collector/ragtrace_collector/judge/evaluator.py",
        old="next((guard.stopped() for guard in self._guards(self.name)), None)",
        new="next((each.outcome for each in [self.closed()] if each), None)",
        tests=(f"{_WAITS_TESTS}::test_that_nothing_is_judged_is_said_until_the_judge_is_back",),
    ),
    Mutant(
        promise="budget",
        breaks="a request that was turned down is no call",
        file=_CALLS,
        old='        """Record that the endpoint rejected the request before any model worked on it."""\n',
        new='        """Record that the endpoint rejected the request before any model worked on it."""\n        self.usage = Usage()\n',
        tests=(f"{_FAILED_TESTS}::test_a_call_that_nobody_worked_on_is_a_call_and_no_tokens",),
    ),
    Mutant(
        promise="budget",
        breaks="a request that failed took no tokens",
        file=_CALLS,
        old="return 300 <= status < 400 or status in _UNTOUCHED",
        new="return status >= 300",
        tests=(f"{_FAILED_TESTS}::test_a_call_that_may_have_cost_its_tokens_stays_counted_as_estimated",),
    ),
    Mutant(
        promise="budget",
        breaks="of the requests of an attempt one alone is counted before it leaves",
        file="ragtrace/budget/reserve.py",
        old="            reservation = await self.guard.further(self.cost_estimator.expected_of(call), self.share)\n",
        new="            yield\n            return\n",
        tests=(f"{_FAILED_TESTS}::test_attempts_of_several_requests_pass_no_limit_and_none_waits_for_ever",),
    ),
    Mutant(
        promise="limits",
        breaks="an answer from outside may be of any size",
        file="ragtrace/http/_body.py",
        old="        if self._came_bytes > self._most_bytes or len(plain) > left:\n",
        new="        if False:\n",
        tests=("tests/attack/test_sizes.py::test_a_body_of_one_byte_too_many_is_oversized",),
    ),
    Mutant(
        promise="limits",
        breaks="the spans that an application keeps may take any memory",
        file="ragtrace/capture/_span_queue.py",
        old=" or self.held_bytes > self.most_bytes",
        new="",
        tests=(
            "tests/attack/test_app_memory.py::test_the_queue_is_bounded_and_its_counts_add_up_whatever_comes",
        ),
    ),
    Mutant(
        promise="links",
        breaks="a planted link is followed where a file is written",
        file="ragtrace/files/private.py",
        old="_ALWAYS: Final = os.O_NOFOLLOW | os.O_CLOEXEC\n",
        new="_ALWAYS: Final = os.O_CLOEXEC\n",
        tests=(
            "tests/attack/test_planted_links.py::test_a_sink_does_not_follow_a_link_that_was_planted_while_it_ran",
        ),
    ),
    Mutant(
        promise="foreign files",
        breaks="tables are made in another program's database",
        file="ragtrace/sqlite_file.py",
        old="    if mark != form.application_id and not is_unmarked:\n",
        new="    if mark != form.application_id and is_unmarked:\n",
        tests=("tests/unit/test_sqlite_file.py::test_the_database_of_another_program_is_left_alone",),
    ),
    Mutant(
        promise="hosts",
        breaks="pages are shown by any name (DNS rebinding)",
        file="collector/ragtrace_collector/web/_hosts.py",
        old="        if header is None or self._knows(_host(header)):\n",
        new="        if True:\n",
        tests=("tests/attack/test_hosts.py::test_pages_are_not_shown_by_any_other_name",),
    ),
)
