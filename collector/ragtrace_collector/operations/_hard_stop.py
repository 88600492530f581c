"""The last deadline of a stop: the process ends even if something in it hangs."""

from __future__ import annotations

import _thread
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

DID_NOT_END: Final = 1
"""The exit code of a process that missed the deadline."""
_SAYING_S: Final = 1.0
"""Time to write the last log line: the log's reader may hang too, or the hung code may hold its lock."""
_INTERPRETER_S: Final = 2.0
"""Extra time before the C-level timer ends a process whose interpreter is blocked (by a slow regex, say)."""


class HardStop:
    """Ends the process after a deadline, from its own thread, because the event loop may hang.

    It loses no more than a SIGKILL does: acknowledged spans are committed.
    """

    def __init__(
        self, leave: Callable[[int], object] = os._exit, *, without_interpreter: bool = False
    ) -> None:
        self._leave = leave
        self._without_interpreter = without_interpreter
        self._armed = False
        self._over = threading.Event()

    def arm(self, after_s: float) -> None:
        """Start the countdown unless it runs. Takes no lock, so a signal handler may call it."""
        if self._armed:
            return
        self._armed = True
        _thread.start_new_thread(self._count, (after_s,))
        if self._without_interpreter and sys.__stderr__ is not None:
            with suppress(OSError, ValueError, RuntimeError):  # stderr is closed
                faulthandler.dump_traceback_later(
                    after_s + _SAYING_S + _INTERPRETER_S, exit=True, file=sys.__stderr__
                )

    def disarm(self) -> None:
        """Stop the countdown: everything has ended."""
        self._over.set()
        if self._armed and self._without_interpreter:
            faulthandler.cancel_dump_traceback_later()

    def _count(self, after_s: float) -> None:
        if self._over.wait(after_s):
            return
        saying = threading.Thread(target=self._say, args=(after_s,), daemon=True)
        saying.start()
        saying.join(_SAYING_S)
        self._leave(DID_NOT_END)

    def _say(self, after_s: float) -> None:
        log.critical(
            "did not stop within %.0f s: leaving now; unfinished work is on disk",
            after_s,
            extra=event("stop_forced"),
        )
