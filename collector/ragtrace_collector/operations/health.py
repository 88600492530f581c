"""Whether the collector accepts spans now, and notes for its operator."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_BEAT_S: Final = 1.0


class Phase(StrEnum):
    """The process's phase."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Why the collector accepts no spans (``reasons``), and what senders need not act on (``notes``)."""

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_judging: bool = True
    """Whether answers are judged. If not, they wait on disk, and spans are still accepted."""

    @property
    def is_ready(self) -> bool:
        """Whether spans are accepted."""
        return not self.reasons


@dataclass(slots=True)
class LoopLag:
    """How late the event loop woke from its last sleep. Every request waited as long."""

    seconds: float = 0.0

    async def watch(self) -> None:
        """Measure once a second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self.seconds = max(0.0, loop.time() - due)
