"""Names, ids and numbers that an application tells. What is none of these is left out, and told once."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ragtrace.capture._guard import guarded, note_unread
from ragtrace.capture.privacy.policy import plain_text
from ragtrace.capture.values.plain import CONTAINERS, INT64


def name(value: object, what: str) -> str | None:
    """Return a name, such as a model's: a string. An object in its place may write out all that it holds."""
    return _told(_name(value), value, what)


def identity(value: object, what: str) -> str | None:
    """Return an id as text: a string, or what has a text of its own, such as a number or a UUID."""
    return _told(_identity(value), value, what)


def whole_number(value: object, what: str) -> int | None:
    """Return a number that OTLP can hold: 64 bits."""
    number = _whole_number(value)
    if number is None and value is not None:
        note_unread(what, value)
    return number


def hook(value: object, what: str) -> Callable[..., Any] | None:
    """Return a function of the application's."""
    if callable(value):
        return value
    if value is not None:
        note_unread(what, value)
    return None


def _told(text: str | None, value: object, what: str) -> str | None:
    if text is None and value is not None:
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
    if value is None or callable(value):  # a mock of a number is any number
        return None
    number = int(value)  # type: ignore[call-overload]  # numpy's and others know how
    return number if abs(number) < INT64 else None
