"""Validate names, ids and numbers from the application. Other values are dropped and logged once."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ragtrace.capture._guard import guarded, note_unread
from ragtrace.capture.privacy.policy import plain_text
from ragtrace.capture.values.plain import CONTAINERS, INT64


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
