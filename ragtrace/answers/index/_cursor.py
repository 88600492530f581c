"""Cursors: where a list goes on, bound to its filter and order."""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Final, NamedTuple

from ragtrace.answers.port import AnswerFilter, SortBy
from ragtrace.errors import InputError

_FORM: Final = struct.Struct(">6sqq")


class Place(NamedTuple):
    """A place in a list: what is after it has a later key, or the same key and a later row."""

    key: int
    row: int


def encode(place: Place, chosen: AnswerFilter, sort: SortBy) -> str:
    """Return the cursor of a place, for URLs."""
    packed = _FORM.pack(_digest(chosen, sort), *place)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode(cursor: str, chosen: AnswerFilter, sort: SortBy) -> Place:
    """Return the place of a cursor.

    Raises:
        InputError: it is no cursor, or that of another filter or order.
    """
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, key, row = _FORM.unpack(packed)
    except (ValueError, struct.error) as exc:
        raise InputError("the place in the list cannot be read: begin at the first page") from exc
    if digest != _digest(chosen, sort):
        raise InputError(
            "the place is in another list, with another filter or order: begin at the first page"
        )
    return Place(key, row)


def _digest(chosen: AnswerFilter, sort: SortBy) -> bytes:
    return hashlib.sha256(f"{chosen!r}|{sort.value}".encode("utf-8", "replace")).digest()[:6]
