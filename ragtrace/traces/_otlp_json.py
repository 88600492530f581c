"""OTLP's JSON: read fast as exporters write it, else through protobuf's mapping, and written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, Final, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.errors import CodecError
from ragtrace.model import AttributeValue
from ragtrace.traces.text import scrub_surrogates
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


MessageT = TypeVar("MessageT", bound=Message)

_MAX_DEPTH = 200
_JSON_IDS = frozenset({"traceId", "spanId", "parentSpanId"})
_JSON_KEY = re.compile(r"[a-z][A-Za-z0-9]*")
"""OTLP allows only lowerCamelCase keys; ``json_format`` would also accept snake_case and extensions."""
_JSON_PATH = re.compile(r"Failed to parse (\w+) field: ")


def from_json(data: bytes | str, into: MessageT) -> tuple[MessageT, int]:
    """Parse one JSON object into an empty message; return it with the number of repaired strings.

    Those were not valid Unicode.

    Raises CodecError, whose message names the place and never quotes values.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise CodecError(f"not OTLP JSON: expected an object, got {type(tree).__name__}")
        is_replaced = isinstance(data, bytes) and "\ufffd" in text and text.encode() != data
        rewritten = _Rewritten(replaced=is_replaced)
        written = rewritten.tree(tree)
        request = json_format.ParseDict(written, into, ignore_unknown_fields=True)
    except json_format.ParseError as exc:
        path = ".".join(_JSON_PATH.findall(str(exc))[:8])
        raise CodecError(f"not OTLP JSON: a wrong value at {path!r}") from exc
    except RecursionError as exc:
        raise CodecError("not OTLP JSON: nested too deeply") from exc
    except OverflowError as exc:  # an integer of hundreds of digits for a double
        raise CodecError("not OTLP JSON: a number is too large") from exc
    except (ValueError, TypeError, AttributeError) as exc:
        raise CodecError(f"not OTLP JSON: {exc}") from exc
    return request, rewritten.repaired


def to_json(request: ExportTraceServiceRequest) -> str:
    """Write one line of JSON."""
    tree = json_format.MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(_otlp_tree(tree), ensure_ascii=False, separators=(",", ":"))


class _Rewritten:
    """OTLP's JSON converted to protobuf's: ids in base64, unknown keys dropped, valid text."""

    def __init__(self, *, replaced: bool) -> None:
        self.repaired = 0
        """Number of invalid strings."""
        self._replaced = replaced
        """Whether U+FFFD replaces bytes that were not UTF-8."""

    def tree(self, node: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise CodecError(f"not OTLP JSON: nested deeper than {_MAX_DEPTH} levels")
        if isinstance(node, str):
            return self._text(node)
        if isinstance(node, list):
            return [self.tree(item, depth + 1) for item in node]
        if isinstance(node, dict):
            return {
                key: _hex_to_base64(value) if key in _JSON_IDS else self.tree(value, depth + 1)
                for key, value in node.items()
                if _JSON_KEY.fullmatch(key)
            }
        return node

    def _text(self, text: str) -> str:
        scrubbed = scrub_surrogates(text)
        self.repaired += scrubbed != text or (self._replaced and "\ufffd" in text)
        return scrubbed


def _otlp_tree(node: Any) -> Any:
    """Convert protobuf's JSON to OTLP's: ids in hex."""
    if isinstance(node, list):
        return [_otlp_tree(item) for item in node]
    if isinstance(node, dict):
        return {
            key: base64.b64decode(value).hex() if key in _JSON_IDS else _otlp_tree(value)
            for key, value in node.items()
        }
    return node


def _hex_to_base64(value: Any) -> str | None:
    """Return an id in protobuf's JSON; what is no id becomes empty: only its span is rejected then."""
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (ValueError, TypeError):
        return None
