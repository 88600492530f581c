"""The OTLP codecs: from bytes to span values, and back.

They follow the OpenTelemetry Protocol 1.x: binary protobuf, and protobuf's JSON mapping with OTLP's
deviations (ids in hex, keys in lowerCamelCase only, unknown fields ignored). Unreadable input raises
[`CodecError`][ragtrace.errors.CodecError] and no other error; its message never quotes values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.errors import CodecError
from ragtrace.traces._otlp_checks import (
    MAX_PARTS,
    is_flood,
    is_flood_of_json,
    is_flood_on_the_wire,
    repaired_text,
)
from ragtrace.traces._otlp_envelope import cut_traces, new_envelope, read_envelope
from ragtrace.traces._otlp_json import from_json, to_json, usual_spans
from ragtrace.traces._otlp_values import are_valid_ids, has_valid_ids, parent_id, to_request, to_spans
from ragtrace.traces.trace import Span

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from ragtrace.traces._otlp_envelope import Envelope


Encoding = Literal["protobuf", "json"]
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
    spans = usual_spans(text)
    return to_spans(from_json(text, ExportTraceServiceRequest())[0]) if spans is None else spans


def decode_body(body: bytes, *, encoding: Encoding) -> tuple[Span, ...]:
    """Decode an export request in either encoding, like ``decode``.

    Raises:
        CodecError: the bytes are not in that encoding, hold too many parts, or an id is invalid.
    """
    spans = usual_spans(body) if encoding == "json" and not is_flood_of_json(body) else None
    return to_spans(parse_request(body, encoding=encoding)) if spans is None else spans


def read_spans(body: bytes, *, encoding: Encoding) -> tuple[tuple[Span, ...], str]:
    """Decode an export request; return its spans, and what is wrong with those that have no valid ids.

    Raises:
        CodecError: the bytes are not in that encoding, or hold too many parts.
    """
    spans = usual_spans(body) if encoding == "json" and not is_flood_of_json(body) else None
    if spans is not None:
        return spans, ""
    request = parse_request(body, encoding=encoding)
    rejected = _spans_by_trace(request).get(_NO_TRACE, 0)
    if rejected:
        drop_spans_without_ids(request)
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


def drop_spans_without_ids(request: ExportTraceServiceRequest) -> None:
    """Remove the spans that ``split_by_trace`` rejects."""
    drop_spans(request, lambda span: not has_valid_ids(span))


def drop_spans(request: ExportTraceServiceRequest, unwanted: Callable[[trace_pb2.Span], bool]) -> None:
    """Remove spans from a request, with the scopes and resources that become empty."""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            _keep_only(scope_spans.spans, lambda span: not unwanted(span))
        _keep_only(resource_spans.scope_spans, lambda scope_spans: bool(scope_spans.spans))
    _keep_only(request.resource_spans, lambda resource_spans: bool(resource_spans.scope_spans))


def _keep_only(
    messages: RepeatedCompositeFieldContainer[MessageT], wanted: Callable[[MessageT], bool]
) -> None:
    kept = [message for message in messages if wanted(message)]
    if len(kept) < len(messages):  # otherwise all would be copied for nothing
        del messages[:]
        messages.extend(kept)


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
