"""The last deadline of a stop: the process ends even where something in it does not."""

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
"""The exit code of a process that had to be ended."""
_SAYING_S: Final = 1.0
"""Whoever reads the log may hang as well, or what hangs may hold the log's lock."""
_INTERPRETER_S: Final = 2.0
"""More, for what holds the interpreter, so that no thread of ours runs: a pattern, say."""


class HardStop:
    """Ends the process after a time, from a thread of its own: the event loop may be what hangs.

    Nothing is lost by it that a SIGKILL would not lose: what was acknowledged is committed.
    """

    def __init__(
        self, leave: Callable[[int], object] = os._exit, *, without_interpreter: bool = False
    ) -> None:
        self._leave = leave
        self._without_interpreter = without_interpreter
        self._armed = False
        self._over = threading.Event()

    def arm(self, after_s: float) -> None:
        """Start to count; what is armed already goes on. A signal's handler may call it: it takes no lock."""
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
        """Stop to count: everything has ended."""
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
            "did not end within %.0f s of being told to: leaving; what is not done is on disk",
            after_s,
            extra=event("stop_forced"),
        )
