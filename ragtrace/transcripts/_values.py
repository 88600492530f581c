"""Encodes records and evaluations as JSON and decodes them to equal values."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from ragtrace.errors import InputError

T = TypeVar("T")

_BYTES: Final = "\0bytes"
"""A key that no attribute has."""


def to_json(value: Any) -> bytes:
    """Encode a dataclass."""
    return json.dumps(asdict(value), default=_bytes_out, separators=(",", ":")).encode()


def from_json(kind: type[T], text: bytes) -> T:
    """Decode a dataclass of this kind; unknown fields are ignored.

    Raises:
        InputError: the text is not of this kind.
    """
    try:
        value: T = _read(kind, json.loads(text, object_hook=_bytes_in))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise InputError(f"the stored value is not a {kind.__name__} of this version of ragtrace") from exc
    return value


def _read(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if value is None:
        return None
    if origin in (Union, UnionType):
        return _read(_chosen([member for member in get_args(kind) if member is not NoneType], value), value)
    if origin is tuple:
        return tuple(_read(get_args(kind)[0], entry) for entry in value)
    if isinstance(kind, type) and is_dataclass(kind):
        known = {name: entry for name, entry in value.items() if name in _hints(kind)}
        return kind(**{name: _read(_hints(kind)[name], entry) for name, entry in known.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return _attribute(value)


def _chosen(kinds: list[Any], value: Any) -> Any:
    """Choose the type of an outcome by its fields."""
    if len(kinds) == 1 or not isinstance(value, Mapping):
        return kinds[0]
    return max(kinds, key=lambda kind: len(_hints(kind).keys() & value.keys()))


@lru_cache(maxsize=64)
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _attribute(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_attribute(entry) for entry in value)
    if isinstance(value, dict):
        return {key: _attribute(entry) for key, entry in value.items()}
    return value


def _bytes_out(value: object) -> object:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _bytes_in(node: dict[str, Any]) -> Any:
    return base64.b64decode(node[_BYTES]) if node.keys() == {_BYTES} else node
