"""The last deadline of a stop: the process ends even where something in it does not."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from ragtrace_collector.operations.logs import event

__all__ = ["DID_NOT_END", "HardStop"]

log = logging.getLogger("ragtrace.collector")

DID_NOT_END: Final = 1
"""The exit code of a process that had to be ended."""


class HardStop:
    """Ends the process after a time, from a thread of its own: the event loop may be what hangs.

    Nothing is lost by it that a SIGKILL would not lose: what was acknowledged is committed.
    """

    def __init__(self, leave: Callable[[int], object] = os._exit) -> None:
        self._leave = leave
        self._timer: threading.Timer | None = None

    def arm(self, after_s: float) -> None:
        """Start to count; what is armed already goes on."""
        if self._timer is None:
            self._timer = threading.Timer(after_s, self._end, args=(after_s,))
            self._timer.daemon = True
            self._timer.start()

    def disarm(self) -> None:
        """Stop to count: everything has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, after_s: float) -> None:
        log.critical(
            "did not end within %.0f s of being told to: leaving; what is not done is on disk",
            after_s,
            extra=event("stop_forced"),
        )
        self._leave(DID_NOT_END)
