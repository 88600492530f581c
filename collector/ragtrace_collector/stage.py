"""A stage: one step, repeated, that reads from the store and writes to it.

A crash between two statements loses nothing: what was not committed is done again, and the same input gives
the same span ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event, place_of

log = logging.getLogger("ragtrace.collector")

Step = Callable[[], Awaitable[bool]]
"""One turn of a stage. It returns whether it found work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A row of the collector's table of stages."""

    name: str
    step: Step
    pause_s: float
    """How long the stage waits after a turn without work."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends the pause early."""

    async def run(self, stop: asyncio.Event, counters: Counters) -> None:
        """Repeat the step until ``stop`` is set.

        A turn that fails (on a full disk, for example) is counted and logged, and the stage goes on.
        """
        while not stop.is_set():
            self.wake.clear()
            try:
                found_work = await self.step()
            except Exception as exc:  # noqa: BLE001 -- a failed turn must not end the stage
                report_stage_error(exc, stage=self.name, counters=counters)
                found_work = False
            if not found_work:
                await first_of(self.wake, stop, timeout_s=self.pause_s)


def report_stage_error(exc: Exception, *, stage: str, counters: Counters) -> None:
    """Count and log an error that a stage survives: the store's by its text, others' may quote content."""
    counters.add(Counts.STAGE_ERRORS)
    reason = exc if isinstance(exc, StoreUnavailable) else place_of(exc)
    log.error("%s: %s", stage, reason, extra=event("stage_error", stage=stage))


async def first_of(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait until one of the events is set, or for so long."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
