"""The system clock, the default for every `clock` argument."""

from __future__ import annotations

import time


class SystemClock:
    """A [`Clock`][ragtrace.ports.Clock] that returns the system time."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return time.time_ns()
