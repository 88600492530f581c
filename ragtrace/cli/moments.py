"""Times as people write them: how long ago, or a date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from ragtrace.durations import UNITS_S, duration_of

_UNITS_S: Final = {**UNITS_S, "w": 7 * 86_400.0}


class _Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            found = duration_of(str(value), _UNITS_S)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)
        if found is None:
            self.fail("write a duration with its unit, such as 90s, 15m, 2h, 7d or 4w", param, ctx)
        return found


class Moment:
    """A moment: so long before now, or a date, which is UTC where it does not say otherwise."""

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


class _Moment(click.ParamType):  # type: ignore[type-arg]
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        if isinstance(value, Moment):
            return value
        try:
            return Moment(str(value))
        except ValueError:
            self.fail("write how long ago (2h, 7d) or a date (2026-11-20, 2026-11-20T18:00Z)", param, ctx)


DURATION: Final = _Duration()
MOMENT: Final = _Moment()
