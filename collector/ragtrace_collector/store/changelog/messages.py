"""Rows as the messages of a topic.

The key is a JSON array: the table and the row's key. The value is the columns as an OTLP ``ArrayValue``: it
has SQLite's types exactly, and no value for NULL. A deleted row is a message without a value.
"""

from __future__ import annotations

import json
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

from ragtrace_collector.store.changelog.log import LoggedRow, SqlValue

_BYTES: Final = "hex"
_KINDS: Final = frozenset({"string_value", "int_value", "double_value", "bytes_value"})


def encode_key(row: LoggedRow) -> bytes:
    """Return the message key of a row: the same row always has the same."""
    return json.dumps(
        (row.table, *row.key), separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_hex
    ).encode()


def encode_values(row: LoggedRow) -> bytes | None:
    """Return the message value of a row."""
    if row.values is None:
        return None
    return ArrayValue(values=map(_any_value, row.values)).SerializeToString()


def decode(key: bytes | None, value: bytes | None) -> LoggedRow:
    """Read a message.

    Raises:
        ValueError: it is no row.
    """
    table, *rest = _key_of(key)
    if value is None:
        return LoggedRow(table, tuple(rest), None)
    try:
        values = ArrayValue.FromString(value).values
    except DecodeError as exc:
        raise ValueError("its value is no list of columns") from exc
    return LoggedRow(table, tuple(rest), tuple(map(_sql_value, values)))


def _any_value(value: SqlValue) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    return AnyValue() if value is None else AnyValue(double_value=value)


def _sql_value(value: AnyValue) -> SqlValue:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind not in _KINDS:
        raise ValueError(f"a column of it is of a kind that SQLite has not: {kind}")
    found: SqlValue = getattr(value, kind)
    return found


def _hex(value: object) -> dict[str, str]:
    assert isinstance(value, bytes)
    return {_BYTES: value.hex()}


def _key_of(key: bytes | None) -> tuple[str, *tuple[SqlValue, ...]]:
    try:
        found = json.loads(key or b"", object_hook=lambda value: bytes.fromhex(value[_BYTES]))
    except (ValueError, KeyError, TypeError) as exc:
        raise ValueError("its key is no JSON array") from exc
    if not (isinstance(found, list) and len(found) > 1 and isinstance(found[0], str)):
        raise ValueError("its key names no row")
    if not all(value is None or isinstance(value, int | float | str | bytes) for value in found):
        raise ValueError("its key has a part that SQLite has not")
    return tuple(found)
