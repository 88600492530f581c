"""What strangers say, ask for and send has bounds."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CALLS: Final = "ragtrace/judge/layers.py"
_FAILED_TESTS: Final = "tests/attack/test_judges.py"

MUTANTS: Final = (
    Mutant(
        promise="budget",
        breaks="requests to a judge are not counted as they leave",
        file=_CALLS,
        old="            for watcher in _WATCHERS.get():\n",
        new="            for watcher in ():\n",
        tests=("tests/attack/test_judges.py::test_no_storm_of_failures_passes_a_limit_of_calls",),
    ),
    Mutant(
        promise="budget",
        breaks="of the requests of an attempt one alone is counted before it leaves",
        file="ragtrace/budget/reserve.py",
        old="            reservation = await self.guard.further(self.cost_estimator.expected_of(call))\n",
        new="            yield\n            return\n",
        tests=(f"{_FAILED_TESTS}::test_attempts_of_several_requests_pass_no_limit_and_none_waits_for_ever",),
    ),
)
