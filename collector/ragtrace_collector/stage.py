"""A stage: one step, called again and again, that reads from the store and writes to it.

A crash between any two statements loses nothing: what was not committed is done again, and the same input
gives the same span ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event, place_of

log = logging.getLogger("ragtrace.collector")

Step = Callable[[], Awaitable[bool]]
"""One turn of a stage; says whether it found work."""


async def run_stage(
    step: Step, *, wake: asyncio.Event, stop: asyncio.Event, pause_s: float, counters: Counters
) -> None:
    """Call ``step`` until ``stop`` is set: at once while it finds work, else when woken or after a pause.

    A turn that fails (a full disk, say) is counted and told, and does not end the stage.
    """
    while not stop.is_set():
        wake.clear()
        try:
            found_work = await step()
        except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item
            report_stage_error(exc, stage=step.__qualname__, counters=counters)
            found_work = False
        if not found_work:
            await _first_of(wake, stop, timeout_s=pause_s)


def report_stage_error(exc: Exception, *, stage: str, counters: Counters) -> None:
    """Count and tell what the wall of one stage's item stopped, without its text: that may quote content."""
    counters.add(Counts.STAGE_ERRORS)
    log.error("%s: %s", stage, place_of(exc), extra=event("stage_error", stage=stage))


async def _first_of(*events: asyncio.Event, timeout_s: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
