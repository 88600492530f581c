"""The retry policy of readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 5.0
_LONGEST_ASKED_FOR_S: Final = 30.0
_MOST_ATTEMPTS: Final = 100
"""The minimum pause, even if the server asks for none."""


@dataclass(slots=True, kw_only=True)
class ReadRetries:
    """The remaining time budget of one request with all its attempts.

    The limit is a time, not a number of attempts. If a server fails four of five requests, two minutes (27
    attempts) succeed in all but one of 400 cases.
    """

    seconds: float = 120.0
    attempts: int = 0
    """Failed attempts so far."""
    waited_s: float = 0.0

    def pause_s(self, asked_for_s: float | None = None, *, took_s: float = 0.0) -> float | None:
        """Return the pause after a failed attempt; ``None`` if the time is up.

        Args:
            asked_for_s: The server's ``Retry-After``.
            took_s: The duration of the attempt.
        """
        own = min(_FIRST_PAUSE_S * 2.0 ** min(self.attempts, 30), _LONGEST_PAUSE_S)
        pause = own if asked_for_s is None else min(asked_for_s, _LONGEST_ASKED_FOR_S)
        self.attempts += 1
        self.waited_s += took_s + pause
        return pause if self.waited_s <= self.seconds and self.attempts < _MOST_ATTEMPTS else None

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"tried {times}"
