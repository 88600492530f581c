"""Convert OTLP messages to span values, and back; and OTLP's JSON."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import EncodeError, Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace.errors import CodecError
from ragtrace.model import AttributeValue
from ragtrace.traces.trace import (
    Resource,
    Scope,
    Span,
    SpanEvent,
    SpanKind,
    SpanLink,
    StatusCode,
    scrub_surrogates,
)

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer


_TRACE_ID_BYTES = 16
_SPAN_ID_BYTES = 8
_NO_TRACE_ID = bytes(_TRACE_ID_BYTES)
_NO_SPAN_ID = bytes(_SPAN_ID_BYTES)
_MAX_VALUE_DEPTH = 92
"""Nesting limit of an attribute's value. Parsers stop at 100 messages in total: they could not read a deeper
value."""
_ARRAY_DEPTH = 2  # ArrayValue, AnyValue
_KVLIST_DEPTH = 3  # KeyValueList, KeyValue, AnyValue


def to_spans(request: ExportTraceServiceRequest) -> tuple[Span, ...]:
    """Convert all spans of a request. Raises CodecError for invalid ids."""
    return tuple(
        _span(span, resource, scope)
        for resource_spans in request.resource_spans
        for resource in [_resource(resource_spans)]
        for scope_spans in resource_spans.scope_spans
        for scope in [_scope(scope_spans)]
        for span in scope_spans.spans
    )


def _resource(message: trace_pb2.ResourceSpans) -> Resource:
    return Resource(attributes=_attributes(message.resource.attributes), schema_url=message.schema_url)


def _scope(message: trace_pb2.ScopeSpans) -> Scope:
    return Scope(name=message.scope.name, version=message.scope.version, schema_url=message.schema_url)


def _span(message: trace_pb2.Span, resource: Resource, scope: Scope) -> Span:
    if not has_valid_ids(message):
        raise CodecError(
            f"a span has a trace id of {len(message.trace_id)} bytes and a span id of {len(message.span_id)}:"
            f" OTLP wants {_TRACE_ID_BYTES} and {_SPAN_ID_BYTES}, not all zero"
        )
    return Span(
        trace_id=message.trace_id.hex(),
        span_id=message.span_id.hex(),
        parent_span_id=parent_id(message),
        name=message.name,
        kind=_span_kind(message.kind),
        start_ns=message.start_time_unix_nano,
        end_ns=max(message.end_time_unix_nano, message.start_time_unix_nano),
        attributes=_attributes(message.attributes),
        events=tuple(_event(event) for event in message.events),
        links=tuple(_link(link) for link in message.links if has_valid_ids(link)),
        status_code=_status_code(message.status.code),
        status_message=message.status.message,
        dropped_attributes_count=message.dropped_attributes_count,
        flags=message.flags,
        trace_state=message.trace_state,
        resource=resource,
        scope=scope,
    )


def _span_kind(number: int) -> SpanKind:
    return SpanKind(number) if number in _SPAN_KINDS else SpanKind.UNSPECIFIED


def _status_code(number: int) -> StatusCode:
    return StatusCode(number) if number in _STATUS_CODES else StatusCode.UNSET


_SPAN_KINDS = frozenset(SpanKind)
_STATUS_CODES = frozenset(StatusCode)


def _event(message: trace_pb2.Span.Event) -> SpanEvent:
    return SpanEvent(
        name=message.name, time_ns=message.time_unix_nano, attributes=_attributes(message.attributes)
    )


def _link(message: trace_pb2.Span.Link) -> SpanLink:
    return SpanLink(
        trace_id=message.trace_id.hex(),
        span_id=message.span_id.hex(),
        attributes=_attributes(message.attributes),
    )


def _attributes(pairs: Iterable[common_pb2.KeyValue]) -> dict[str, AttributeValue]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(message: common_pb2.AnyValue) -> AttributeValue:
    match message.WhichOneof("value"):
        case "array_value":
            return tuple(_value(item) for item in message.array_value.values)
        case "kvlist_value":
            return _attributes(message.kvlist_value.values)
        case "string_value" | "bool_value" | "int_value" | "double_value" | "bytes_value" as kind:
            scalar: str | bool | int | float | bytes = getattr(message, kind)
            return scalar
        case _:
            return None


def has_valid_ids(span: trace_pb2.Span | trace_pb2.Span.Link | logs_pb2.LogRecord) -> bool:
    """Return whether both ids have OTLP's length and are not all zero."""
    trace_id, span_id = span.trace_id, span.span_id
    return (
        len(trace_id) == _TRACE_ID_BYTES
        and len(span_id) == _SPAN_ID_BYTES
        and trace_id != _NO_TRACE_ID
        and span_id != _NO_SPAN_ID
    )


def are_valid_ids(trace_ids: Collection[bytes], span_ids: Collection[bytes]) -> bool:
    """Return whether `has_valid_ids` holds for all spans with these ids."""
    return (
        {*map(len, trace_ids)} <= {_TRACE_ID_BYTES}
        and {*map(len, span_ids)} <= {_SPAN_ID_BYTES}
        and _NO_TRACE_ID not in trace_ids
        and _NO_SPAN_ID not in span_ids
    )


def parent_id(span: trace_pb2.Span) -> str | None:
    """Return the parent's id in hex; some exporters write a root's missing parent as eight zero bytes."""
    value = span.parent_span_id
    return value.hex() if len(value) == _SPAN_ID_BYTES and value != _NO_SPAN_ID else None


def to_request(spans: Iterable[Span]) -> ExportTraceServiceRequest:
    """Convert spans to a request, grouped by resource and scope. Raises CodecError for invalid values."""
    request = ExportTraceServiceRequest()
    resources: dict[bytes, trace_pb2.ResourceSpans] = {}
    scopes: dict[tuple[bytes, Scope], trace_pb2.ScopeSpans] = {}
    try:
        for span in spans:
            draft = _resource_message(span.resource)
            resource_key = draft.SerializeToString()
            if resource_key not in resources:
                resources[resource_key] = request.resource_spans.add()
                resources[resource_key].CopyFrom(draft)
            scope_key = (resource_key, span.scope)
            if scope_key not in scopes:
                scopes[scope_key] = resources[resource_key].scope_spans.add()
                _fill_scope(scopes[scope_key], span.scope)
            _fill_span(scopes[scope_key].spans.add(), span)
    except (ValueError, TypeError, EncodeError) as exc:
        raise CodecError("a span holds a value that OTLP cannot hold: an id, a number or a type") from exc
    return request


def _resource_message(resource: Resource) -> trace_pb2.ResourceSpans:
    message = trace_pb2.ResourceSpans(schema_url=resource.schema_url)
    fill_attributes(message.resource.attributes, resource.attributes)
    return message


def _fill_scope(message: trace_pb2.ScopeSpans, scope: Scope) -> None:
    message.scope.name = scrub_surrogates(scope.name)
    message.scope.version = scrub_surrogates(scope.version)
    message.schema_url = scrub_surrogates(scope.schema_url)


def _fill_span(message: trace_pb2.Span, span: Span) -> None:
    message.trace_id = bytes.fromhex(span.trace_id)
    message.span_id = bytes.fromhex(span.span_id)
    message.parent_span_id = bytes.fromhex(span.parent_span_id or "")
    message.trace_state = scrub_surrogates(span.trace_state)
    message.flags = span.flags
    message.name = scrub_surrogates(span.name)
    message.kind = trace_pb2.Span.SpanKind.ValueType(span.kind)
    message.start_time_unix_nano = span.start_ns
    message.end_time_unix_nano = span.end_ns
    fill_attributes(message.attributes, span.attributes)
    message.dropped_attributes_count = span.dropped_attributes_count
    for event in span.events:
        target = message.events.add(name=scrub_surrogates(event.name), time_unix_nano=event.time_ns)
        fill_attributes(target.attributes, event.attributes)
    for link in span.links:
        ids = {"trace_id": bytes.fromhex(link.trace_id), "span_id": bytes.fromhex(link.span_id)}
        fill_attributes(message.links.add(**ids).attributes, link.attributes)
    if span.status_code or span.status_message:
        message.status.code = trace_pb2.Status.StatusCode.ValueType(span.status_code)
        message.status.message = scrub_surrogates(span.status_message)


def fill_attributes(
    target: RepeatedCompositeFieldContainer[common_pb2.KeyValue],
    attributes: Mapping[str, AttributeValue],
    depth: int = 0,
) -> None:
    """Write attributes into a message. Raises CodecError for a value nested too deeply."""
    for key, value in attributes.items():
        _fill_value(target.add(key=scrub_surrogates(key)).value, value, depth)


def _fill_value(message: common_pb2.AnyValue, value: AttributeValue, depth: int) -> None:
    if depth > _MAX_VALUE_DEPTH:
        raise CodecError(
            "an attribute is nested too deeply for protobuf parsers (45 arrays, 30 key-value lists)"
        )
    if value is None:
        return
    if isinstance(value, str):
        message.string_value = scrub_surrogates(value)
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        message.int_value = value
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, bytes):
        message.bytes_value = value
    elif isinstance(value, Mapping):
        message.kvlist_value.SetInParent()
        fill_attributes(message.kvlist_value.values, value, depth + _KVLIST_DEPTH)
    else:
        message.array_value.SetInParent()
        for item in value:
            _fill_value(message.array_value.values.add(), item, depth + _ARRAY_DEPTH)


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
