"""The machine's own time, where nobody passes another in."""

from __future__ import annotations

import time


class SystemClock:
    """A [`Clock`][ragtrace.ports.Clock] that tells the machine's own time."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return time.time_ns()
