"""A run that can be stopped and resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ragtrace.backfill.progress import Progress
from ragtrace.backfill.report import RunCounts


async def _at_once() -> None:
    """Return at once."""


def _nobody(ledger: RunCounts) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumableRun:
    """A run that can be stopped and resumed."""

    progress: Progress
    name: str = ""
    """The name of a search; its reached time is stored, and a later run resumes there."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """When it is set, pending answers are finished and no new one begins."""
    turn: Callable[[], Awaitable[None]] = _at_once
    """Awaited before each answer, so that others can go first. It must end when ``stop`` is set."""
    watch: Callable[[RunCounts], None] = _nobody
    """Called with the counts of the run when it begins; they are updated while it runs."""
    leaves_waiting: bool = False
    """Whether pending answers are left for a later run instead of finished when the run is stopped."""

    async def pause(self, seconds: float) -> None:
        """Wait until the time is over or the run is stopped, so that retries end soon."""
        await pause(seconds, self.stop)


async def pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait until the time is over or the run is stopped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
