"""A stage: one step, called again and again, that reads from the store and writes to it.

A crash between any two statements loses nothing: what was not committed is done again, and the same input
gives the same span ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ragtrace_collector.telemetry import Counters, Counts

__all__ = ["Step", "place_of", "run_stage"]

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
            counters.add(Counts.STAGE_ERRORS)
            log.error("%s: %s", step.__qualname__, place_of(exc))  # noqa: TRY400 -- its text may quote content
            found_work = False
        if not found_work:
            await _first_of(wake, stop, timeout_s=pause_s)


async def _first_of(*events: asyncio.Event, timeout_s: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def place_of(exc: BaseException) -> str:
    """Return the class and place of an error, without its text, which may quote what is under judgment."""
    frame = exc.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "?"
    return f"{type(exc).__name__} at {where}"
