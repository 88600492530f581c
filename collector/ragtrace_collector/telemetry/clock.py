"""A monotonic clock for due times, quiet periods and ages, and one for times that applications tell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ragtrace.ports import Clock
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_WORTH_TELLING_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * 10**9
_FAR_AHEAD_NS: Final = 7 * _DAY_NS


class SteadyClock:
    """Another clock's time, which continues from its latest reading if that clock is set back.

    It is then ahead by as much as that clock went back, after a restart too if the store has the time.
    """

    def __init__(self, clock: Clock, *, not_before_ns: int = 0) -> None:
        self._clock = clock
        self._latest_ns = not_before_ns
        self._ahead_ns = 0

    def now_ns(self) -> int:
        """Unix time in nanoseconds, never less than before."""
        now_ns = self._clock.now_ns() + self._ahead_ns
        if now_ns < self._latest_ns:
            self._go_on_from_latest(self._latest_ns - now_ns)
        self._latest_ns = max(now_ns, self._latest_ns)
        return self._latest_ns

    def _go_on_from_latest(self, back_ns: int) -> None:
        self._ahead_ns += back_ns
        if back_ns >= _WORTH_TELLING_NS:
            log.warning(
                "the clock was set back by %.0f s: waiting times are unaffected; carriers that are dated "
                "`now` are dated ahead by as much",
                back_ns / 1e9,
                extra=event("clock_set_back"),
            )


class CalendarClock:
    """Another clock's time, to compare with times of applications: if it was wrong once, it is right again.

    It runs ahead by no more than has passed since the start. If the clock is far ahead of the newest answer
    then, it begins with that answer's time: nothing is deleted because the clock is ahead.
    """

    def __init__(
        self, clock: Clock, monotonic_ns: Callable[[], int], *, newest_ns: int | None = None
    ) -> None:
        self._clock = clock
        self._monotonic_ns = monotonic_ns
        now_ns = clock.now_ns()
        self._began_ns = now_ns - monotonic_ns()
        if newest_ns is not None and now_ns - newest_ns > _FAR_AHEAD_NS:
            self._began_ns = newest_ns - monotonic_ns()
            log.warning(
                "the clock is %d days ahead of the newest judged answer: none is deleted for its age;"
                " if the clock is right, restart once newer answers are judged",
                (now_ns - newest_ns) // _DAY_NS,
                extra=event("clock_ahead"),
            )

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return min(self._clock.now_ns(), self._began_ns + self._monotonic_ns())
