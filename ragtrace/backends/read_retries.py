"""How long to go on asking a server that does not answer well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 5.0
_LONGEST_ASKED_FOR_S: Final = 30.0
_MOST_ATTEMPTS: Final = 100
"""Of a server that asks for no pause at all."""


@dataclass(slots=True, kw_only=True)
class ReadRetries:
    """What is left of the time that one request may take with all its attempts.

    Measured in time and not in attempts: a server that turns four of five requests away answers one of 27,
    which is what two minutes are, but for one time in 400.
    """

    seconds: float = 120.0
    attempts: int = 0
    """That went wrong so far."""
    waited_s: float = 0.0

    def pause_s(self, asked_for_s: float | None = None, *, took_s: float = 0.0) -> float | None:
        """Return how long to wait after an attempt that went wrong; ``None``: no longer.

        Args:
            asked_for_s: What the server asked for (``Retry-After``).
            took_s: How long the attempt took.
        """
        own = min(_FIRST_PAUSE_S * 2.0 ** min(self.attempts, 30), _LONGEST_PAUSE_S)
        pause = own if asked_for_s is None else min(asked_for_s, _LONGEST_ASKED_FOR_S)
        self.attempts += 1
        self.waited_s += took_s + pause
        return pause if self.waited_s <= self.seconds and self.attempts < _MOST_ATTEMPTS else None

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"tried {times}"
