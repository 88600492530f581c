"""Quarantine: which traces are being read, so that a restart knows which one crashed the process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol


class QuarantineReason(StrEnum):
    """Why a trace was set aside."""

    CRASHES = "crashes"
    """The process crashed each time it read the trace."""
    CPU = "cpu"
    """Assembling and reading it took too much CPU time."""


class QuarantineRecord(NamedTuple):
    """The suspicion against a trace."""

    crashes: int
    """How many processes crashed while they read it."""
    poison: str
    """Why it was set aside (a `QuarantineReason`); empty if it was not."""


class QuarantineStore(Protocol):
    """Notes which traces are being read, before they are."""

    async def look(self, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord]:
        """Note that traces are being read, except suspects, which are returned.

        A look ends with the decision, or with ``end_look``. A trace that is being read when the process
        crashes becomes a suspect.
        """
        ...

    async def look_alone(self, trace_id: str) -> bool:
        """Note that a suspect is being read; return False while another suspect (trace or answer) is."""
        ...

    async def end_look(self, trace_ids: Collection[str]) -> None:
        """Note that traces were read. A suspicion stays until the decision about its trace."""
        ...

    async def set_aside(self, trace_id: str, *, poison: str, now_ns: int) -> int:
        """Set a trace aside without reading it. Its queued answers end; return how many.

        It is decided from then on, and released if it was held.
        """
        ...
