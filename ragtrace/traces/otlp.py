"""The OTLP codecs: from bytes to span values, and back.

They follow the OpenTelemetry Protocol 1.x: binary protobuf, and protobuf's JSON mapping with OTLP's
deviations (ids in hex, keys in lowerCamelCase only, unknown fields ignored). Unreadable input raises
[`CodecError`][ragtrace.errors.CodecError] and no other error; its message never quotes values. Requests of
very many parts are refused, and strings that are not UTF-8 repaired.

Copying and reserializing parsed spans costs five times as much as parsing, so kept spans are cut from the
request's bytes. Protobuf does the cutting: a message has the same wire format as bytes, and a schema that
declares it as ``bytes`` leaves it unparsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.errors import CodecError
from ragtrace.traces._otlp_values import (
    are_valid_ids,
    from_json,
    has_valid_ids,
    parent_id,
    to_json,
    to_request,
    to_spans,
)
from ragtrace.traces.trace import Span

if TYPE_CHECKING:
    from google.protobuf.internal.containers import (
        RepeatedCompositeFieldContainer,
        RepeatedScalarFieldContainer,
    )

    class EnvelopeOfScope(Message):
        """``ScopeSpans`` with members as bytes."""

        scope: RepeatedScalarFieldContainer[bytes]
        """In pieces, as protobuf allows."""
        spans: RepeatedScalarFieldContainer[bytes]
        schema_url: bytes

    class EnvelopeOfResource(Message):
        """``ResourceSpans`` of such scopes."""

        resource: RepeatedScalarFieldContainer[bytes]
        """In pieces, as protobuf allows."""
        scope_spans: RepeatedCompositeFieldContainer[EnvelopeOfScope]
        schema_url: bytes

    class Envelope(Message):
        """``ExportTraceServiceRequest`` of such resources."""

        resource_spans: RepeatedCompositeFieldContainer[EnvelopeOfResource]


Encoding = Literal["protobuf", "json"]
MAX_PARTS: Final = 500_000
"""Resources, scopes, spans, attributes, events and links in one request; in JSON, objects and arrays."""
MessageT = TypeVar("MessageT", bound=Message)


class SpanRef(NamedTuple):
    """The ids and the place of a span."""

    span_id: str
    parent_span_id: str | None
    is_feedback: bool = False
    """A span of feedback: the trace can be complete without it."""
    of_log: bool = False
    """A stand-in that holds log records of the span; its ``span_id`` is one of its own."""
    is_call: bool = False
    """Marked as a whole RAG call (``ragtrace.kind``)."""
    content_hash: int | None = None
    """Equal for copies of a span that is sent twice unchanged, within this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSlice:
    """The part of a request that belongs to one trace."""

    trace_id: str
    payload: bytes
    """Serialized ``TracesData`` (on the wire the same as an ``ExportTraceServiceRequest``)."""
    spans: tuple[SpanRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest:
    """A request split by trace."""

    slices: tuple[TraceSlice, ...]
    spans: int = 0
    """Number of spans with valid ids, in all traces."""
    rejected: int = 0
    """Number of spans without valid ids: the response is a partial success."""
    reject_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A parsed export request."""

    request: ExportTraceServiceRequest
    body: bytes | None
    """The equivalent protobuf bytes; ``None`` for JSON."""
    texts_repaired: int = 0
    """Number of strings that were not UTF-8; U+FFFD replaces their invalid bytes."""
    spans_cut: int = 0
    """Number of spans of unwanted traces, which were not parsed."""


def parse_request(data: bytes, *, encoding: Encoding) -> ExportTraceServiceRequest:
    """Parse the body of an export request, like ``read_request``.

    Raises:
        CodecError: the bytes are not what the encoding says, or hold too many parts.
    """
    return read_request(data, encoding=encoding).request


def read_request(
    data: bytes,
    *,
    encoding: Encoding,
    repair: bool = True,
    wanted: Callable[[str, int], bool] | None = None,
) -> ParsedRequest:
    """Parse the body of an export request.

    Spans with zero, missing or short ids pass: ``split_by_trace`` rejects them one by one. Repairing strings
    takes seconds at worst: without ``repair``, a protobuf request that needs it is refused. ``wanted`` is
    called with trace ids and their numbers of spans: of a protobuf request, it keeps spans of other traces
    from being parsed.

    Raises:
        CodecError: the bytes are not what the encoding says, or hold too many parts.
    """
    if encoding == "json":
        if is_flood_of_json(data):
            raise CodecError(_FLOOD)
        request, repaired = from_json(data, ExportTraceServiceRequest())
        return ParsedRequest(request=request, body=None, texts_repaired=repaired)
    if is_flood_on_the_wire(data):
        raise CodecError(_FLOOD)
    spans_cut = 0
    if wanted is not None:
        with suppress(DecodeError):  # the parser reports it
            data, spans_cut = cut_traces(data, wanted=wanted)
    parsed = replace(_parse(data, repair=repair), spans_cut=spans_cut)
    if len(data) > 2 * MAX_PARTS and is_flood(parsed.request):  # fewer bytes cannot hold that many
        del parsed  # otherwise the error's traceback would keep it in memory
        raise CodecError(_FLOOD)
    return parsed


def _parse(data: bytes, *, repair: bool) -> ParsedRequest:
    try:
        return ParsedRequest(request=ExportTraceServiceRequest.FromString(data), body=data)
    except DecodeError as exc:
        repaired = repaired_text(data) if repair else None
        if repaired is None or repaired[1] == 0:
            raise CodecError(f"not an OTLP protobuf trace request ({len(data)} bytes): {exc}") from exc
    body, number = repaired
    return ParsedRequest(request=ExportTraceServiceRequest.FromString(body), body=body, texts_repaired=number)


_FLOOD: Final = f"more than {MAX_PARTS:,} parts in one request: send smaller batches"


def split_by_trace(
    request: ExportTraceServiceRequest,
    *,
    wanted: Callable[[str, int], bool] = lambda _trace_id, _spans: True,
    body: bytes | None = None,
) -> SplitRequest:
    """Split a request into one slice per trace id, in order of appearance.

    ``wanted`` is called with each trace id and its number of spans; an unwanted trace costs little more than
    that. ``body`` is the source of the parsed request, if still equivalent; it saves serializing again.

    Raises:
        CodecError: the slices, each with a copy of its resources, would be far larger than the request.
    """
    numbers = _spans_by_trace(request)
    rejected = numbers.pop(_NO_TRACE, 0)
    whole = body if len(numbers) == 1 and not rejected else None
    chosen = dict.fromkeys(trace_id for trace_id, number in numbers.items() if wanted(trace_id.hex(), number))
    slices: Iterable[TraceSlice] = ()
    if chosen:
        envelope = read_envelope(request.SerializeToString() if body is None else body)
        slices = _within_bounds(_slices(request, envelope, chosen, whole=whole))
    return SplitRequest(
        slices=tuple(slices),
        spans=sum(numbers.values()),
        rejected=rejected,
        reject_reason=_reject_reason(rejected),
    )


def _reject_reason(spans: int) -> str:
    return f"{spans} spans without a valid trace id and span id" if spans else ""


def decode(payload: bytes) -> tuple[Span, ...]:
    """Decode serialized ``TracesData`` or an ``ExportTraceServiceRequest``.

    A span that ends before it starts gets the start as its end.

    Raises:
        CodecError: the bytes are not OTLP, or an id has the wrong length.
    """
    return to_spans(parse_request(payload, encoding="protobuf"))


def decode_json(text: str) -> tuple[Span, ...]:
    """Decode one OTLP JSON object, like ``decode``.

    Raises:
        CodecError: the text is not OTLP JSON, or an id has the wrong length.
    """
    return to_spans(from_json(text, ExportTraceServiceRequest())[0])


def read_spans(body: bytes, *, encoding: Encoding) -> tuple[tuple[Span, ...], str]:
    """Decode an export request; return its spans, and what is wrong with those that have no valid ids.

    Raises:
        CodecError: the bytes are not in that encoding, or hold too many parts.
    """
    request = parse_request(body, encoding=encoding)
    rejected = _spans_by_trace(request).get(_NO_TRACE, 0)
    if rejected:
        drop_spans(request, lambda span: not has_valid_ids(span))
    return to_spans(request), _reject_reason(rejected)


def spans_in(request: ExportTraceServiceRequest) -> tuple[Span, ...]:
    """Return the spans of a parsed request, like ``decode``."""
    return to_spans(request)


def trace_ids_in(request: ExportTraceServiceRequest) -> tuple[str, ...]:
    """Return the trace ids of a parsed request, each once."""
    return tuple(trace_id.hex() for trace_id in _spans_by_trace(request) if trace_id != _NO_TRACE)


def encode(spans: Iterable[Span]) -> bytes:
    """Encode spans as an ``ExportTraceServiceRequest``, grouped by resource and scope in order of appearance.

    The same spans in the same order give the same bytes. U+FFFD replaces lone surrogates.

    Raises:
        CodecError: a value does not fit into OTLP (an integer beyond 64 bits, a value nested too deeply).
    """
    return to_request(spans).SerializeToString()


def encode_json(spans: Iterable[Span]) -> str:
    """Encode spans as one line of OTLP JSON, as the OTLP file exporter writes it. See ``encode``."""
    return request_to_json(to_request(spans))


def request_to_json(request: ExportTraceServiceRequest) -> str:
    """Encode a parsed request as one line of OTLP JSON."""
    return to_json(request)


_NO_TRACE: Final = b""


def _spans_by_trace(request: ExportTraceServiceRequest) -> dict[bytes, int]:
    """Count spans by trace id, in order of appearance; ``_NO_TRACE`` has the rejected ones.

    It runs for every received span, wanted or not, so it looks at the ids of a scope at once; at one after
    the other only if some are invalid.
    """
    numbers: Counter[bytes] = Counter()
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            ids = [(span.trace_id, span.span_id) for span in scope_spans.spans]
            counted = Counter([trace_id for trace_id, _ in ids])
            if not are_valid_ids(counted, {span_id for _, span_id in ids}):
                counted = Counter(
                    span.trace_id if has_valid_ids(span) else _NO_TRACE for span in scope_spans.spans
                )
            numbers.update(counted)
    return numbers


_Place = tuple[int, int]
"""The index of a resource in its request, and of a scope in that resource."""
_Member = tuple[trace_pb2.Span, bytes]
"""A span and its raw bytes."""


def _slices(
    request: ExportTraceServiceRequest,
    envelope: Envelope,
    trace_ids: Collection[bytes],
    *,
    whole: bytes | None,
) -> Iterator[TraceSlice]:
    members: dict[bytes, dict[_Place, list[_Member]]] = {trace_id: {} for trace_id in trace_ids}
    for resource_index, resource_spans in enumerate(request.resource_spans):
        scopes = envelope.resource_spans[resource_index].scope_spans
        for scope_index, scope_spans in enumerate(resource_spans.scope_spans):
            found = _members(scope_spans, scopes[scope_index].spans, trace_ids)
            for trace_id, of_scope in found.items():
                members[trace_id][resource_index, scope_index] = of_scope
    for trace_id, places in members.items():
        yield TraceSlice(
            trace_id=trace_id.hex(),
            payload=_select(envelope, places).SerializeToString() if whole is None else whole,
            spans=tuple(_ref(span) for of_scope in places.values() for span, _ in of_scope),
        )


def _members(
    scope_spans: trace_pb2.ScopeSpans, raws: Sequence[bytes], trace_ids: Collection[bytes]
) -> Mapping[bytes, list[_Member]]:
    members: dict[bytes, list[_Member]] = {}
    for number, span in enumerate(scope_spans.spans):
        trace_id = span.trace_id
        if trace_id in trace_ids and has_valid_ids(span):
            members.setdefault(trace_id, []).append((span, raws[number]))
    return members


def drop_spans(request: ExportTraceServiceRequest, unwanted: Callable[[trace_pb2.Span], bool]) -> int:
    """Remove spans from a request, with the scopes and resources that become empty; return how many."""
    dropped = 0
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            dropped += _keep_only(scope_spans.spans, lambda span: not unwanted(span))
        _keep_only(resource_spans.scope_spans, lambda scope_spans: bool(scope_spans.spans))
    _keep_only(request.resource_spans, lambda resource_spans: bool(resource_spans.scope_spans))
    return dropped


def _keep_only(
    messages: RepeatedCompositeFieldContainer[MessageT], wanted: Callable[[MessageT], bool]
) -> int:
    kept = [message for message in messages if wanted(message)]
    dropped = len(messages) - len(kept)
    if dropped:  # otherwise all would be copied for nothing
        del messages[:]
        messages.extend(kept)
    return dropped


def _within_bounds(slices: Iterable[TraceSlice]) -> Iterator[TraceSlice]:
    number_of_bytes = 0
    for piece in slices:
        number_of_bytes += len(piece.payload)
        if number_of_bytes > _MOST_BYTES:
            raise CodecError(
                f"copied into each of its traces, the resources take more than {_MOST_BYTES:,} bytes: "
                "send smaller batches"
            )
        yield piece


_MOST_BYTES: Final = 128 << 20
"""The limit for all slices of a request together."""


def _select(envelope: Envelope, places: Mapping[_Place, Sequence[_Member]]) -> Envelope:
    chosen = new_envelope()
    for resource_index, of_resource in groupby(places, key=itemgetter(0)):
        source = envelope.resource_spans[resource_index]
        target = chosen.resource_spans.add(resource=source.resource, schema_url=source.schema_url)
        _copy_unknown(source, target, members="scope_spans")
        for place in of_resource:
            scope_source = source.scope_spans[place[1]]
            scope_target = target.scope_spans.add(
                scope=scope_source.scope, schema_url=scope_source.schema_url
            )
            _copy_unknown(scope_source, scope_target, members="spans")
            scope_target.spans.extend([raw for _, raw in places[place]])
    return chosen


def _copy_unknown(source: Message, target: Message, *, members: str) -> None:
    """Copy fields of a later version of OTLP, so that they are forwarded too."""
    if len(UnknownFieldSet(source)):  # rare: the copy first duplicates all members
        whole = type(source)()
        whole.CopyFrom(source)
        whole.ClearField(members)
        target.Clear()
        target.CopyFrom(whole)


def _ref(span: trace_pb2.Span) -> SpanRef:
    written = (
        span.SerializeToString()
    )  # not the raw bytes: other services in a loop may serialize it differently
    if span.name == semconv.LOG_RECORDS_SPAN:
        return SpanRef(
            f"{span.span_id.hex()}#{hash(written):x}", None, of_log=True, content_hash=hash(written)
        )
    return SpanRef(
        span_id=span.span_id.hex(),
        parent_span_id=parent_id(span),
        is_feedback=_is_feedback(span),
        is_call=_CALL in written and _is_call(span),
        content_hash=hash(written),
    )


_CALL: Final = KeyValue(
    key=semconv.RAG_KIND, value=AnyValue(string_value=semconv.KIND_RAG)
).SerializeToString()
"""Searched in the bytes first, because checking each attribute is slow."""


def _is_call(span: trace_pb2.Span) -> bool:
    return any(
        attribute.key == semconv.RAG_KIND and attribute.value.string_value == semconv.KIND_RAG
        for attribute in span.attributes
    )


def _is_feedback(span: trace_pb2.Span) -> bool:
    return span.name.startswith(semconv.FEEDBACK_SPAN) and any(
        attribute.key == semconv.FEEDBACK_NAME for attribute in span.attributes
    )


def read_envelope(body: bytes) -> Envelope:
    """Parse the envelope of a valid request."""
    return cast("Envelope", _REQUEST.FromString(body))


def cut_traces(body: bytes, *, wanted: Callable[[str, int], bool]) -> tuple[bytes, int]:
    """Cut the spans of unwanted traces out of a request; return the rest, and how many were cut.

    Of each span only the ids are read, at its beginning, where encoders write them. A span without valid ids
    there stays. ``wanted`` is called once with each trace id and its number of spans.

    Raises:
        DecodeError: the envelope cannot be parsed.
    """
    envelope = read_envelope(body)
    scopes = [scope for resource in envelope.resource_spans for scope in resource.scope_spans]
    trace_ids = [_trace_ids(scope.spans) for scope in scopes]
    numbers = Counter(chain.from_iterable(trace_ids))
    unread = numbers.pop(_UNREAD, 0)
    unwanted = {trace_id for trace_id, number in numbers.items() if not wanted(trace_id.hex(), number)}
    if not unwanted:
        return body, 0
    if not unread and len(unwanted) == len(numbers):
        return b"", numbers.total()
    for scope, of_scope in zip(scopes, trace_ids, strict=True):
        kept = [
            span for span, trace_id in zip(scope.spans, of_scope, strict=True) if trace_id not in unwanted
        ]
        del scope.spans[:]
        scope.spans.extend(kept)
    return envelope.SerializeToString(), sum(numbers[trace_id] for trace_id in unwanted)


def _trace_ids(spans: Iterable[bytes]) -> Sequence[bytes]:
    heads = [span[:_HEAD_BYTES] for span in spans]
    together = b"".join(heads)
    if _are_tagged(together, len(heads)) and bytes(8) not in together:  # no id is zero
        return [head[_TRACE_ID] for head in heads]
    return [head[_TRACE_ID] if _has_ids(head) else _UNREAD for head in heads]


def _are_tagged(heads: bytes, number: int) -> bool:
    """Return whether each head is a trace id and a span id of the right lengths."""
    return len(heads) == number * _HEAD_BYTES and all(
        heads[place::_HEAD_BYTES] == bytes([byte]) * number for place, byte in _TAGS
    )


def _has_ids(head: bytes) -> bool:
    return _are_tagged(head, 1) and any(head[_TRACE_ID]) and any(head[_SPAN_ID])


_UNREAD: Final = b""
_HEAD_BYTES: Final = 28
_TAGS: Final = ((0, 0x0A), (1, 16), (18, 0x12), (19, 8))
"""Fields 1 and 2, ``trace_id`` and ``span_id``, with their lengths: ``Span`` in OTLP's ``trace.proto``."""
_TRACE_ID: Final = slice(2, 18)
_SPAN_ID: Final = slice(20, 28)


def new_envelope() -> Envelope:
    """Return an empty envelope."""
    return cast("Envelope", _REQUEST())


_PACKAGE: Final = "ragtrace.envelope"
_BYTES: Final = FieldDescriptorProto.TYPE_BYTES
_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE
_ONE: Final = FieldDescriptorProto.LABEL_OPTIONAL
_MANY: Final = FieldDescriptorProto.LABEL_REPEATED


def _bytes(name: str, number: int, label: FieldDescriptorProto.Label.ValueType) -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, label=label, type=_BYTES)


def _messages(name: str, number: int, of: str) -> FieldDescriptorProto:
    return FieldDescriptorProto(
        name=name, number=number, label=_MANY, type=_MESSAGE, type_name=f".{_PACKAGE}.{of}"
    )


def _request_class() -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    schema_url = _bytes("schema_url", 3, _ONE)
    scope = [_bytes("scope", 1, _MANY), _bytes("spans", 2, _MANY), schema_url]
    resource = [_bytes("resource", 1, _MANY), _messages("scope_spans", 2, "ScopeSpans"), schema_url]
    request = [_messages("resource_spans", 1, "ResourceSpans")]
    fields = {"ScopeSpans": scope, "ResourceSpans": resource, "Request": request}
    messages = [DescriptorProto(name=name, field=field) for name, field in fields.items()]
    pool.Add(
        FileDescriptorProto(
            name="ragtrace/envelope.proto", package=_PACKAGE, syntax="proto3", message_type=messages
        )
    )
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Request"))


_REQUEST: Final = _request_class()


_Fields = Mapping[int, "_Fields | None"]
_RESOURCE: Final[_Fields] = {1: None}
_SCOPE: Final[_Fields] = {3: None}
_SPAN: Final[_Fields] = {9: None, 11: None, 13: None}
_OF_TRACES: Final[_Fields] = {1: {1: _RESOURCE, 2: {1: _SCOPE, 2: _SPAN}}}
"""The numbers of the counted fields, with the counted fields inside them."""

_OF_LOGS: Final[_Fields] = {1: {1: _RESOURCE, 2: {1: _SCOPE, 2: {6: None}}}}

_LARGE_BYTES: Final = 4 << 20
_MAX_FIELDS: Final = 2_000_000
"""The limit of scanned fields of any kind: far more than a large request of usual spans has."""
_LENGTH_DELIMITED: Final = 2
_LAST_OF_ONE_BYTE: Final = 127
_FIXED_BYTES: Final = {1: 8, 5: 4}


def is_flood_of_json(data: bytes) -> bool:
    """Return whether a JSON body holds too many parts, before parsing it."""
    return data.count(b"{") + data.count(b"[") > MAX_PARTS


def is_flood_on_the_wire(data: bytes) -> bool:
    """Return whether a large protobuf body holds too many parts, before parsing it.

    This is slower than parsing and counting, so small bodies are skipped: their memory use is acceptable.
    """
    return _is_flood(data, _OF_TRACES)


def is_flood_of_logs(data: bytes) -> bool:
    """Return whether a large protobuf body of a logs request holds too many parts, before parsing it."""
    return _is_flood(data, _OF_LOGS)


def _is_flood(data: bytes, fields: _Fields) -> bool:
    if len(data) < _LARGE_BYTES:
        return False
    try:
        return _walk(data, fields)
    except (IndexError, ValueError):  # cut off, or not protobuf: the parser reports it
        return False


def is_flood(request: ExportTraceServiceRequest) -> bool:
    """Return whether a parsed request holds too many parts."""
    number = 0
    for more in _parts(request):
        number += more
        if number > MAX_PARTS:
            return True
    return False


def _parts(request: ExportTraceServiceRequest) -> Iterator[int]:
    yield len(request.resource_spans)
    for resource_spans in request.resource_spans:
        yield len(resource_spans.resource.attributes) + len(resource_spans.scope_spans)
        for scope_spans in resource_spans.scope_spans:
            yield len(scope_spans.scope.attributes) + len(scope_spans.spans)
            for span in scope_spans.spans:
                yield len(span.attributes) + len(span.events) + len(span.links)


def _walk(data: bytes, request: _Fields) -> bool:
    """Count parts by their tags, up to the limit."""
    parts = fields_seen = 0
    waiting: list[tuple[int, int, _Fields]] = [(0, len(data), request)]
    while waiting:
        position, end, fields = waiting.pop()
        while position < end:
            fields_seen += 1
            if parts > MAX_PARTS or fields_seen > _MAX_FIELDS:
                return True
            tag, position = data[position], position + 1  # mostly one byte: a call for each is expensive
            if tag > _LAST_OF_ONE_BYTE:
                tag, position = _varint(data, position - 1)
            field, wire_type = tag >> 3, tag & 7
            if wire_type == _LENGTH_DELIMITED:
                length, position = data[position], position + 1
                if length > _LAST_OF_ONE_BYTE:
                    length, position = _varint(data, position - 1)
                if field in fields:
                    parts += 1
                    if inside := fields[field]:
                        waiting.append((position, min(position + length, end), inside))
                position += length
            elif wire_type == 0:
                _, position = _varint(data, position)
            else:  # a group has no length: its content is counted as its sibling
                position += _FIXED_BYTES.get(wire_type, 0)
    return False


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte <= _LAST_OF_ONE_BYTE:
            return value, position
    raise ValueError("a number of more than ten bytes")


def repaired_text(body: bytes, of: type[Message] = ExportTraceServiceRequest) -> tuple[bytes, int] | None:
    """Return the request with U+FFFD for invalid UTF-8, and the number of changed strings.

    ``None`` if this schema cannot parse it either, or if it has too many parts to check.
    """
    request_class = _of_unchecked_texts(of.DESCRIPTOR.full_name)
    try:
        request = request_class.FromString(body)
    except DecodeError:
        return None
    waiting, seen, repaired = [request], 0, 0
    while waiting:
        message = waiting.pop()
        seen += 1
        if seen + len(waiting) > MAX_PARTS:
            return None
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend((value,) if isinstance(value, Message) else value)
            elif field.type == field.TYPE_STRING:
                repaired += _repair(message, field.name, value)
    return request.SerializeToString(), repaired


def _repair(message: Message, field: str, value: Any) -> int:
    """Repair the texts of a field, which are bytes where they are not UTF-8, and return their number."""
    if isinstance(value, bytes):
        setattr(message, field, value.decode("utf-8", "replace"))
        return 1
    broken = 0 if isinstance(value, str) else sum(isinstance(text, bytes) for text in value)
    if broken:
        value[:] = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in value]
    return broken


def _files(file: FileDescriptor) -> Iterator[FileDescriptor]:
    for needed in file.dependencies:
        yield from _files(needed)
    yield file


@cache
def _of_unchecked_texts(name: str) -> type[Message]:
    """Return the message as of proto2, which does not check that texts are UTF-8."""
    pool = descriptor_pool.DescriptorPool()
    service = descriptor_pool.Default().FindMessageTypeByName(name).file
    for file in {each.name: each for each in _files(service)}.values():
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        copy.ClearField("service")
        copy.syntax = "proto2"
        pool.Add(copy)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
