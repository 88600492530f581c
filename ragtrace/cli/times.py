"""Times as people write them: how long ago, or a date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from ragtrace.durations import UNITS_S, duration_of

_UNITS_S: Final = {**UNITS_S, "w": 7 * 86_400.0}


def duration(text: str) -> timedelta:
    """Read a duration.

    Raises:
        ValueError: it is none.
    """
    found = duration_of(text, _UNITS_S)
    if found is None:
        raise ValueError("write a duration with its unit, such as 90s, 15m, 2h, 7d or 4w")
    return found


def moment(text: str) -> Moment:
    """Read a moment.

    Raises:
        ValueError: it is neither a duration nor a date.
    """
    try:
        return Moment(text)
    except ValueError:
        raise ValueError("write how long ago (2h, 7d) or a date (2026-11-20, 2026-11-20T18:00Z)") from None


class Moment:
    """A moment: so long before now, or a date, in UTC if it names no zone."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._ago = duration_of(self._text, _UNITS_S)
        date = None if self._ago is not None else datetime.fromisoformat(self._text)
        self._date = date.replace(tzinfo=UTC) if date and date.tzinfo is None else date

    def __str__(self) -> str:
        return self._text

    def at(self, now_ns: int) -> int:
        """Return nanoseconds since 1970."""
        if self._ago is not None:
            return now_ns - int(self._ago.total_seconds() * 1e9)
        assert self._date is not None
        return int(self._date.timestamp() * 1e6) * 1_000
