"""Whether the collector takes spans now, and what a person should know even though it does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_BEAT_S: Final = 1.0


class Phase(StrEnum):
    """Where the process stands in its life."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Why senders should go elsewhere (``reasons``), and what need not trouble them (``notes``)."""

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_judging: bool = True
    """Whether answers get verdicts. If not they wait on disk, and senders need not go elsewhere."""

    @property
    def is_ready(self) -> bool:
        """Whether spans are taken."""
        return not self.reasons


@dataclass(slots=True)
class LoopLag:
    """How late the event loop woke from its last sleep: what every request waited, too."""

    seconds: float = 0.0

    async def watch(self) -> None:
        """Measure once a second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self.seconds = max(0.0, loop.time() - due)
