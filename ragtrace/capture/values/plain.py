"""Convert values of any shape to JSON values or text, bounded; validate names, ids and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from json import JSONEncoder
from json.encoder import encode_basestring, encode_basestring_ascii
from numbers import Number
from typing import Any, NamedTuple, TypeVar

from ragtrace.capture._guard import guarded, note_unread

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
        pairs = room.first(value.items())
        return {str(text(key)): _plain(inner, text, room, depth + 1) for key, inner in pairs}
    return [_plain(inner, text, room, depth + 1) for inner in room.first(value)]


def json_string(text: str) -> str:
    """Return the text as JSON; the ASCII encoder is faster."""
    return encode_basestring_ascii(text) if text.isascii() else encode_basestring(text)


def cut(text: str, limit: int) -> tuple[str, int, bool]:
    """Return the longest prefix of at most ``limit`` bytes of UTF-8, its size, and whether it is shorter.

    The text holds no lone surrogates: see [`plain_text`][ragtrace.capture.values.plain.plain_text].
    """
    if text.isascii():
        return (text, len(text), False) if len(text) <= limit else (text[:limit], limit, True)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text, len(encoded), False
    # Only the last character can be incomplete, and only that is what "ignore" drops.
    prefix = encoded[:limit].decode(errors="ignore")
    return prefix, len(prefix.encode()), True


def plain_text(value: object) -> str:
    """Return the value as text that every OTLP receiver accepts: no lone surrogates, no NUL.

    Protobuf refuses a whole batch because of one lone surrogate; some stores refuse NUL. Both become U+FFFD.
    """
    text = value if type(value) is str else _as_str(value) or ""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Encoding via UTF-16 rejoins two surrogates of one character that an escape had split.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@guarded
def _as_str(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, CONTAINERS):
        return compact_json(plain(value, plain_text).value)
    if type(value).__str__ is object.__str__ and not isinstance(value, Number):
        # A `repr` writes the whole value, and grows without end if the value contains itself.
        return f"<{type(value).__name__}>"
    return str(value)


def name(value: object, what: str) -> str | None:
    """Return a name, such as a model's. Only a string: the ``str`` of an object may reveal its content."""
    return _text(_name, value, what)


def identity(value: object, what: str) -> str | None:
    """Return an id as text, from a string or a value with a text form, such as a number or a UUID."""
    return _text(_identity, value, what)


def whole_number(value: object, what: str) -> int | None:
    """Return a whole number that fits OTLP's 64 bits."""
    if value is None:
        return None
    number = _whole_number(value)
    if number is None:
        note_unread(what, value)
    return number


def hook(value: object, what: str) -> Callable[..., Any] | None:
    """Return a callable of the application."""
    if callable(value):
        return value
    if value is not None:
        note_unread(what, value)
    return None


def _text(read: Callable[[object], str | None], value: object, what: str) -> str | None:
    if value is None:
        return None
    if type(value) is str:  # nothing of the application's is called
        return plain_text(value)
    text = read(value)
    if text is None:
        note_unread(what, value)
    return text


@guarded
def _name(value: object) -> str | None:
    held = value.value if isinstance(value, Enum) else value
    return plain_text(held) if isinstance(held, str | bytes) else None


@guarded
def _identity(value: object) -> str | None:
    if isinstance(value, str | bytes):
        return plain_text(value)
    if callable(value) or isinstance(value, CONTAINERS) or type(value).__str__ is object.__str__:
        return plain_text(value) if isinstance(value, int | float) else None
    return plain_text(value)


@guarded
def _whole_number(value: object) -> int | None:
    if callable(value):  # a mock converts to any number
        return None
    number = int(value)  # type: ignore[call-overload]  # numpy's and others convert
    return number if abs(number) < INT64 else None
