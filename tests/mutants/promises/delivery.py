"""What is on its way to a back end: there, refused or kept, and told as what it is."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_DELIVERING: Final = "collector/ragtrace_collector/deliver.py"
_ANSWER: Final = "ragtrace/backends/otlp_sinks.py"
_UNREADABLE_TESTS: Final = "tests/attack/test_partial_success.py"
_SOAK_TESTS: Final = "tests/soak/test_soak.py"

MUTANTS: Final = (
    Mutant(
        promise="delivery",
        breaks="a third of deliveries is thrown away and told as done",
        file=_DELIVERING,
        old="            await self.sink.send(payload)\n",
        new="            if payload[-1] % 3:\n                await self.sink.send(payload)\n",
        tests=(f"{_SOAK_TESTS}::test_everything_that_was_sent_is_accounted_for_under_mixed_load",),
        is_slow=True,
    ),
    Mutant(
        promise="delivery",
        breaks="a partial success is taken for a whole one",
        file=_ANSWER,
        old="    if rejected:\n",
        new="    if False:\n",
        tests=(
            "tests/attack/test_partial_success.py::test_every_verdict_that_a_back_end_refused_is_told_kept_and_counted",
        ),
    ),
    Mutant(
        promise="delivery",
        breaks="what is answered unreadably is sent for ever",
        file=_DELIVERING,
        old="        if exc.again and self._unreadable < MOST_UNREADABLE:\n",
        new="        if exc.again:\n",
        tests=(f"{_UNREADABLE_TESTS}::test_what_is_answered_unreadably_is_sent_ever_more_seldom",),
    ),
)
