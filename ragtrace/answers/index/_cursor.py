"""Cursors: where a list goes on, bound to its filter and order."""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Final, NamedTuple

from ragtrace.answers.port import AnswerFilter, SortBy
from ragtrace.errors import InputError

_FORM: Final = struct.Struct(">6sqq")
_MERGED: Final = struct.Struct(">6sqIq")
_LAST_ROW: Final = 2**62


class Place(NamedTuple):
    """A place in a list: what is after it has a later key, or the same key and a later row."""

    key: int
    row: int


class MergedPlace(NamedTuple):
    """A place in a list that is merged from several indexes: equal keys are in the order of the parts."""

    key: int
    part: int
    row: int

    def within(self, part: int) -> Place:
        """Return the place in the list of a part. Either order of the list is fine, if parts follow it."""
        if part == self.part:
            return Place(self.key, self.row)
        return Place(self.key, _LAST_ROW if part < self.part else -_LAST_ROW)


def encode(place: Place, chosen: AnswerFilter, sort: SortBy) -> str:
    """Return the cursor of a place, for URLs."""
    return _text(_FORM.pack(_digest(chosen, sort), *place))


def decode(cursor: str, chosen: AnswerFilter, sort: SortBy) -> Place:
    """Return the place of a cursor.

    Raises:
        InputError: it is no cursor, or that of another filter or order.
    """
    return Place(*_numbers(_FORM, cursor, chosen, sort))


def encode_merged(place: MergedPlace, chosen: AnswerFilter, sort: SortBy) -> str:
    """Return the cursor of a place in a merged list, for URLs."""
    return _text(_MERGED.pack(_digest(chosen, sort), *place))


def decode_merged(cursor: str, chosen: AnswerFilter, sort: SortBy) -> MergedPlace:
    """Return the place of a cursor of a merged list.

    Raises:
        InputError: it is no such cursor, or that of another filter or order.
    """
    return MergedPlace(*_numbers(_MERGED, cursor, chosen, sort))


def _text(packed: bytes) -> str:
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _numbers(form: struct.Struct, cursor: str, chosen: AnswerFilter, sort: SortBy) -> tuple[int, ...]:
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, *numbers = form.unpack(packed)
    except (ValueError, struct.error) as exc:
        raise InputError("the place in the list cannot be read: begin at the first page") from exc
    if digest != _digest(chosen, sort):
        raise InputError(
            "the place is in another list, with another filter or order: begin at the first page"
        )
    return tuple(numbers)


def _digest(chosen: AnswerFilter, sort: SortBy) -> bytes:
    return hashlib.sha256(f"{chosen!r}|{sort.value}".encode("utf-8", "replace")).digest()[:6]
