"""Dead letters: messages of a topic that could not be used, noted without what they held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that could not be used, and where it is."""

    topic: str
    partition: int
    offset: int
    reason: str
    """A class of causes, never a message: see docs/kafka.md."""
    bytes: int
    """Its size; nothing else of what it held is kept."""
    copied_to: str = ""
    """The dead-letter topic that has a copy; empty if none has."""


class DeadLetterStore(Protocol):
    """Notes each dead letter once, by topic, partition and offset. The ledger counts them for good."""

    async def note_dead_letter(self, letter: DeadLetter, *, now_ns: int) -> bool:
        """Note a dead letter; return False if it was noted before, because the message came again."""
        ...

    async def dead_letters(self, limit: int) -> tuple[DeadLetter, ...]:
        """Return the dead letters that were noted last, the newest first, as far as they are kept."""
        ...
