"""Read attribute values by type, from any back end: a value of another type is absent, never guessed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from ragtrace.model import AttributeValue

Attributes: TypeAlias = Mapping[str, AttributeValue]

_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


def text_of(attributes: Attributes, key: str) -> str | None:
    """Return a string."""
    value = attributes.get(key)
    return value if isinstance(value, str) else None


def number_of(attributes: Attributes, key: str) -> float | None:
    """Return a finite number. Back ends that store text only have it in digits (Langfuse)."""
    value = attributes.get(key)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def integer_of(attributes: Attributes, key: str) -> int | None:
    """Return a whole number. Back ends that have one type of number store it as a float."""
    value = attributes.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = number_of(attributes, key)
    return int(number) if number is not None and number.is_integer() else None


def flag_of(attributes: Attributes, key: str) -> bool:
    """Return whether a flag is set."""
    return attributes.get(key) in (True, "true", "True")


def texts_of(attributes: Attributes, key: str) -> tuple[str, ...]:
    """Return an array of strings. Back ends without arrays have it as JSON (Jaeger's older API)."""
    value = attributes.get(key)
    if isinstance(value, str):
        value = _parsed(value)
    members = value if isinstance(value, tuple) else (value,)
    return tuple(member for member in members if isinstance(member, str))


def _parsed(text: str) -> AttributeValue:
    if not text.startswith("["):
        return text
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return tuple(member for member in tree if isinstance(member, str))


def moment_of(attributes: Attributes, key: str) -> int | None:
    """Return an RFC 3339 time in UTC as Unix time in nanoseconds."""
    found = _MOMENT.fullmatch(text_of(attributes, key) or "")
    if found is None:
        return None
    try:
        seconds = int(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
    return seconds * 1_000_000_000 + int((found[2] or "0").ljust(9, "0"))
