"""What a command leaves out because it cannot be read."""

from __future__ import annotations

from typing import Final

from ragtrace.cli.render import many, talk
from ragtrace.errors import InputError

_MOST_TOLD: Final = 20


class UnreadableParts:
    """Tells the first of them on stderr, and counts them all."""

    def __init__(self) -> None:
        self.number = 0
        self._told: set[str] = set()

    def tell(self, fault: InputError) -> None:
        """Take note of what is left out; what is read twice is told once."""
        told = str(fault)
        if told in self._told:
            return
        self.number += 1
        if len(self._told) < _MOST_TOLD:
            self._told.add(told)
            talk(f"left out: {told}")

    def tell_rest(self) -> None:
        """Say how many were not told."""
        if self.number > _MOST_TOLD:
            talk(f"left out: {many(self.number - _MOST_TOLD, 'other piece')} that cannot be read")
