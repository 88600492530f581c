"""What makes a run one that can be stopped and gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ragtrace.backfill.progress import Progress
from ragtrace.backfill.report import RunCounts


async def _at_once() -> None:
    """Wait for nobody."""


def _nobody(ledger: RunCounts) -> None:
    """Look at nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumableRun:
    """What makes a run one that can be stopped and gone on with."""

    progress: Progress
    name: str = ""
    """Of a search: whose reached time is noted, and gone on from."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Once it is set, what is under way is finished and nothing new begun."""
    turn: Callable[[], Awaitable[None]] = _at_once
    """Waited for before each answer is begun, so that others can go first. It ends when ``stop`` is set."""
    watch: Callable[[RunCounts], None] = _nobody
    """Given the counts of the run when it begins: they change as it goes."""
    leaves_waiting: bool = False
    """What is under way when the run is stopped is left, to be gone on with, and not finished."""

    async def pause(self, seconds: float) -> None:
        """Wait, and no longer than until the run is stopped: who asks a server again then gives up soon."""
        await pause(seconds, self.stop)


async def pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait, and no longer than until the run is stopped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
