"""A part of the traffic, as streams and as ranges of the sums."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple

from ragtrace.answers.index._rows import HOUR_NS
from ragtrace.answers.index._sums import DAY
from ragtrace.answers.index._words import Kind, find_word
from ragtrace.answers.port import TrafficScope

_FIRST: Final = -(2**40)
_LAST: Final = 2**40


class SumRange(NamedTuple):
    """Sums of one length in a range of hours."""

    hours: int
    first: int
    end: int
    """Exclusive."""


def streams_in(db: sqlite3.Connection, scope: TrafficScope) -> list[int] | None:
    """Return the numbers of the streams that a scope has; ``None`` for all."""
    wanted = {
        "tenant": (Kind.TENANT, scope.tenant),
        "service": (Kind.SERVICE, scope.service),
        "model": (Kind.MODEL, scope.model),
        "prompt_version": (Kind.PROMPT_VERSION, scope.prompt_version),
    }
    given = {column: find_word(db, kind, text) for column, (kind, text) in wanted.items() if text is not None}
    if not given:
        return None
    if None in given.values():
        return []
    condition = " AND ".join(f"{column} = ?" for column in given)
    found = db.execute(f"SELECT id FROM answer_stream WHERE {condition}", tuple(given.values()))
    return [number for (number,) in found]


def ranges_in(scope: TrafficScope, *, period_hours: int = DAY) -> Iterator[SumRange]:
    """Yield the fewest sums that cover a scope, from its first to its last hour, both whole.

    Days are used only if the period is whole days.
    """
    first = _FIRST * DAY if scope.since_ns is None else scope.since_ns // HOUR_NS
    end = _LAST * DAY if scope.until_ns is None else -(-scope.until_ns // HOUR_NS)
    first_day, end_day = -(-first // DAY) * DAY, end // DAY * DAY
    if period_hours % DAY or first_day >= end_day:
        parts = [SumRange(1, first, end)]
    else:
        parts = [SumRange(1, first, first_day), SumRange(DAY, first_day, end_day), SumRange(1, end_day, end)]
    yield from (part for part in parts if part.first < part.end)


def listed(numbers: list[int] | None, column: str = "stream") -> tuple[str, list[object]]:
    """Return a condition that a column is one of these numbers, and its values; ``None`` allows all."""
    if numbers is None:
        return "1", []
    return f"{column} IN (SELECT value FROM json_each(?))", [json.dumps(numbers)]
