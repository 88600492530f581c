"""Convert values of any shape to JSON values, bounded in depth and number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from json import JSONEncoder
from typing import Any, NamedTuple, TypeVar

V = TypeVar("V")
Text = Callable[[object], str | None]

CONTAINERS = (Mapping, list, tuple, set, frozenset)
INT64 = 2**63
MAX_DEPTH = 8
MAX_VALUES = 1_000
"""Per structure: a list that contains itself twice has 2**depth values."""

compact_json = JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class JsonValue(NamedTuple):
    """A value converted to JSON values."""

    value: object
    is_cut: bool
    """Some values were too deep, or beyond the first 1,000."""


def plain(value: object, text: Text, longest_number: int = INT64) -> JsonValue:
    """Return the value as JSON values; ``text`` converts all values but containers, numbers and booleans.

    An integer of ``longest_number`` or more becomes text, because JSON readers may lose digits.
    """
    room = _Room(longest_number)
    return JsonValue(_plain(value, text, room, 0), room.is_cut)


class _Room:
    __slots__ = ("is_cut", "left", "longest_number")

    def __init__(self, longest_number: int) -> None:
        self.longest_number = longest_number
        self.left = MAX_VALUES
        self.is_cut = False

    def first(self, values: Iterable[V]) -> Iterator[V]:
        for value in values:
            if self.left == 0:
                self.is_cut = True
                return
            self.left -= 1
            yield value


def _plain(value: object, text: Text, room: _Room, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < room.longest_number:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, CONTAINERS):
        return text(value)
    if depth == MAX_DEPTH:
        room.is_cut = True
        return None
    if isinstance(value, Mapping):
        return _plain_mapping(value, text, room, depth + 1)
    return [_plain(inner, text, room, depth + 1) for inner in room.first(value)]


def _plain_mapping(mapping: Mapping[Any, object], text: Text, room: _Room, depth: int) -> dict[str, object]:
    return {str(text(key)): _plain(inner, text, room, depth) for key, inner in room.first(mapping.items())}
