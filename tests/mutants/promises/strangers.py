"""What strangers say, ask for and send has bounds."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CALLS: Final = "ragtrace/judge/calls.py"
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
        promise="budget",
        breaks="requests to a judge are not counted as they leave",
        file=_CALLS,
        old="            for watcher in _WATCHERS.get():\n",
        new="            for watcher in ():\n",
        tests=("tests/attack/test_failed_calls.py::test_no_storm_of_failures_passes_a_limit_of_calls",),
    ),
    Mutant(
        promise="budget",
        breaks="of the requests of an attempt one alone is counted before it leaves",
        file="ragtrace/budget/reserve.py",
        old="            reservation = await self.guard.further(self.cost_estimator.expected_of(call))\n",
        new="            yield\n            return\n",
        tests=(f"{_FAILED_TESTS}::test_attempts_of_several_requests_pass_no_limit_and_none_waits_for_ever",),
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
        file="collector/ragtrace_collector/web/tokens.py",
        old="        if header is None or self._knows(_host(header)):\n",
        new="        if True:\n",
        tests=("tests/attack/test_hosts.py::test_pages_are_not_shown_by_any_other_name",),
    ),
)
