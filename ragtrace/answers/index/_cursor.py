"""Cursors: where a list goes on, bound to its filter and order."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from typing import Final

from ragtrace.answers.port import AnswerFilter, SortBy
from ragtrace.errors import InputError

Place = tuple[float | int, ...]
"""A place in a list: the values that it is ordered by, and the row. What comes later has a later place."""

_LARGEST: Final = 2**63


def encode(place: Place, chosen: AnswerFilter, sort: SortBy) -> str:
    """Return the cursor of a place, for URLs."""
    text = json.dumps([_digest(chosen, sort), *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, chosen: AnswerFilter, sort: SortBy, *, values: int) -> Place:
    """Return the place of a cursor, of so many values.

    Raises:
        InputError: it is no cursor, or that of another filter or order.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, *place = json.loads(text)
    except (ValueError, TypeError, RecursionError) as exc:
        raise InputError("the place in the list cannot be read: begin at the first page") from exc
    if digest != _digest(chosen, sort):
        raise InputError(
            "the place is in another list, with another filter or order: begin at the first page"
        )
    if len(place) != values or not all(_is_number(value) for value in place):
        raise InputError("the place in the list cannot be read: begin at the first page")
    return tuple(place)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) < _LARGEST  # type: ignore[arg-type]


def _digest(chosen: AnswerFilter, sort: SortBy) -> str:
    return hashlib.sha256(f"{chosen!r}|{sort.value}".encode("utf-8", "replace")).hexdigest()[:12]
