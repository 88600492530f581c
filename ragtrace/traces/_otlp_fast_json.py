"""Fast path for OTLP's JSON as exporters write it: straight to spans, several times faster than via protobuf
messages.

Other forms of protobuf's JSON mapping (enums by name, bytes, integers with exponents, nulls in lists) and all
errors are left to the slow path, which has the error messages. Both paths give the same result. Fields
without a counterpart in `Span` are ignored here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, Final

from ragtrace.model import AttributeValue
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, StatusCode

_SURROGATE: Final = re.compile(r"\\u[dD]")
_TRACE_ID: Final = re.compile(r"(?!0{32})[0-9a-fA-F]{32}")
_SPAN_ID: Final = re.compile(r"(?!0{16})[0-9a-fA-F]{16}")
_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")
_NO_PARENT: Final = (None, "", "0" * 16)
_KINDS: Final = {int(kind): kind for kind in SpanKind}
_CODES: Final = {int(code): code for code in StatusCode}
_DEEPEST: Final = 20


class _Unusual(Exception):
    """The input needs the slow path."""


def usual_spans(data: bytes | str) -> tuple[Span, ...] | None:
    """Return the spans of a JSON export request, or ``None`` if it needs the slow path."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        if _SURROGATE.search(text) or not _is_utf8(data):
            return None
        return tuple(_spans(json.loads(text)))
    except (_Unusual, ValueError, RecursionError):
        return None


def _is_utf8(data: bytes | str) -> bool:
    # only a string can hold a lone surrogate: bytes have just been decoded
    return isinstance(data, bytes) or data.isascii() or bool(data.encode())


def _spans(tree: Any) -> Iterator[Span]:
    for of_resource in _objects(_object(tree), "resourceSpans"):
        resource = Resource(
            attributes=_attributes(_object(of_resource.get("resource"))),
            schema_url=_text(of_resource, "schemaUrl"),
        )
        for of_scope in _objects(of_resource, "scopeSpans"):
            named = _object(of_scope.get("scope"))
            scope = Scope(
                name=_text(named, "name"),
                version=_text(named, "version"),
                schema_url=_text(of_scope, "schemaUrl"),
            )
            for each in _objects(of_scope, "spans"):
                yield _span(each, resource, scope)


def _span(node: dict[str, Any], resource: Resource, scope: Scope) -> Span:
    start_ns, status = _number(node, "startTimeUnixNano", 64), _object(node.get("status"))
    parent = node.get("parentSpanId")
    return Span(
        trace_id=_id(node.get("traceId"), _TRACE_ID),
        span_id=_id(node.get("spanId"), _SPAN_ID),
        parent_span_id=None if parent in _NO_PARENT else _id(parent, _SPAN_ID),
        name=_text(node, "name"),
        kind=_KINDS.get(_number(node, "kind", 31), SpanKind.UNSPECIFIED),
        start_ns=start_ns,
        end_ns=max(_number(node, "endTimeUnixNano", 64), start_ns),
        attributes=_attributes(node),
        events=tuple(_event(each) for each in _objects(node, "events")),
        links=tuple(_link(each) for each in _objects(node, "links")),
        status_code=_CODES.get(_number(status, "code", 31), StatusCode.UNSET),
        status_message=_text(status, "message"),
        dropped_attributes_count=_number(node, "droppedAttributesCount", 32),
        flags=_number(node, "flags", 32),
        trace_state=_text(node, "traceState"),
        resource=resource,
        scope=scope,
    )


def _event(node: dict[str, Any]) -> SpanEvent:
    return SpanEvent(
        name=_text(node, "name"), time_ns=_number(node, "timeUnixNano", 64), attributes=_attributes(node)
    )


def _link(node: dict[str, Any]) -> SpanLink:
    return SpanLink(
        trace_id=_id(node.get("traceId"), _TRACE_ID),
        span_id=_id(node.get("spanId"), _SPAN_ID),
        attributes=_attributes(node),
    )


def _attributes(node: dict[str, Any], key: str = "attributes", depth: int = 0) -> dict[str, AttributeValue]:
    return {_text(pair, "key"): _value(pair.get("value"), depth) for pair in _objects(node, key)}


def _value(node: Any, depth: int) -> AttributeValue:
    if type(node) is not dict or len(node) != 1 or depth > _DEEPEST:
        raise _Unusual
    [(kind, value)] = node.items()
    if (kind == "stringValue" and type(value) is str) or (kind == "boolValue" and type(value) is bool):
        return value
    if kind == "intValue":
        return _integer(value, -(1 << 63), 1 << 63)
    if kind == "doubleValue" and type(value) in (int, float) and isfinite(value):
        return float(value)
    if value is None:  # protobuf reads it as unset
        raise _Unusual
    if kind == "arrayValue":
        return tuple(_value(each, depth + 1) for each in _objects(_object(value), "values"))
    if kind == "kvlistValue":
        return _attributes(_object(value), "values", depth + 1)
    raise _Unusual


def _object(node: Any) -> dict[str, Any]:
    if node is None:
        return {}
    if type(node) is not dict:
        raise _Unusual
    return node


def _objects(node: dict[str, Any], key: str) -> Sequence[dict[str, Any]]:
    listed = node.get(key)
    if listed is None:
        return ()
    if type(listed) is not list or not {*map(type, listed)} <= {dict}:
        raise _Unusual
    return listed


def _text(node: dict[str, Any], key: str) -> str:
    value = node.get(key)
    if value is None:
        return ""
    if type(value) is not str:
        raise _Unusual
    return value


def _number(node: dict[str, Any], key: str, bits: int) -> int:
    value = node.get(key)
    return 0 if value is None else _integer(value, 0, 1 << bits)


def _integer(value: Any, least: int, end: int) -> int:
    if type(value) is str and _DIGITS.fullmatch(value):
        value = int(value)
    if type(value) is not int or not least <= value < end:
        raise _Unusual
    return value


def _id(value: Any, form: re.Pattern[str]) -> str:
    if type(value) is not str or not form.fullmatch(value):
        raise _Unusual
    return value.lower()
