"""The process's signals: SIGTERM and SIGINT stop it (a second one at once), SIGHUP reloads."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

from ragtrace_collector.operations._hard_stop import HardStop
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


@dataclass(slots=True, kw_only=True)
class Signals:
    """The signals that came."""

    longest_stop_s: float
    """How long a stop may take before the process is killed."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    reload: asyncio.Event = field(default_factory=asyncio.Event)
    _leaves: bool = False
    _hard_stop: HardStop = field(default_factory=partial(HardStop, without_interpreter=True))

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals until the block ends.

        Raises:
            KeyboardInterrupt: a second signal came, and the block was cancelled.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_stop, task)
            self._arm_at(number)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        try:
            yield
        except asyncio.CancelledError:
            if self._leaves:
                raise KeyboardInterrupt from None
            raise
        finally:
            self._hard_stop.disarm()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _arm_at(self, number: signal.Signals) -> None:
        """Arm the hard stop in the signal handler itself: a hung event loop never runs its own handlers."""
        of_the_loop = signal.getsignal(number)

        def handle(number: int, frame: FrameType | None) -> None:
            self._hard_stop.arm(self.longest_stop_s)
            if callable(of_the_loop):
                of_the_loop(number, frame)

        signal.signal(number, handle)
        signal.siginterrupt(number, False)

    def _on_stop(self, task: asyncio.Task[object] | None) -> None:
        if self.stop.is_set() and task is not None and not self._leaves:
            log.warning("second signal: stopping at once; unfinished work is on disk", extra=event("left"))
            self._leaves = True
            task.cancel()
        self.stop.set()
