"""Content in OTLP log records: messages of a GenAI call that its instrumentation does not put on the span.

OpenTelemetry's GenAI instrumentations write messages as events of the logs signal: by default the older ones
(`gen_ai.user.message`, `gen_ai.choice`, conventions 1.28 to 1.36), and with ``EVENT_ONLY`` the newer ones
(`gen_ai.client.inference.operation.details`, since 1.37). Such a record becomes an event of the span that it
names: here on a stand-in with the span's ids, which is kept like a span, and which `Trace.of` joins to the
span, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.errors import CodecError
from ragtrace.traces._otlp_checks import MAX_PARTS, is_flood_of_json, is_flood_of_logs, repaired_text
from ragtrace.traces._otlp_json import from_json
from ragtrace.traces._otlp_values import has_valid_ids
from ragtrace.traces.otlp import Encoding, drop_spans, parse_request

_EVENT_NAME: Final = "event.name"
"""Where SDKs before the field ``event_name`` write the name."""
_CONTENT: Final = "gen_ai."
_NO_CONTENT: Final = "gen_ai.evaluation."
"""Ours and others' verdicts: an evaluation is never evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecords:
    """What a logs request holds."""

    stand_ins: ExportTraceServiceRequest
    """A span for each record with content: the ids of the span it belongs to, and the record as its event."""
    kept: int
    """The number of these records."""
    others: int
    """The number of records without content, or without the ids of a span."""
    originals: ExportLogsServiceRequest
    """All records but ragtrace's own evaluations, which must not go round in a circle."""
    own: int
    """The number of these evaluations, which are among the others."""
    texts_repaired: int
    """Names, keys and values that were not valid Unicode, and have U+FFFD now."""


def read_logs(data: bytes, *, encoding: Encoding) -> LogRecords:
    """Read the body of an OTLP logs request.

    Raises:
        CodecError: the bytes are not what the encoding says, or hold too many parts.
    """
    request, repaired = _parse(data, encoding)
    stand_ins = ExportTraceServiceRequest()
    kept = records = own = 0
    for resource_logs in request.resource_logs:
        spans = []
        for scope_logs in resource_logs.scope_logs:
            records += len(scope_logs.log_records)
            if scope_logs.scope.name in semconv.OWN_SCOPES:
                own += len(scope_logs.log_records)
                del scope_logs.log_records[:]
            spans += list(_stand_ins(scope_logs.log_records))
        if spans:
            kept += len(spans)
            of_resource = stand_ins.resource_spans.add(
                resource=resource_logs.resource, schema_url=resource_logs.schema_url
            )
            of_resource.scope_spans.add().spans.extend(spans)
    return LogRecords(
        stand_ins=stand_ins,
        kept=kept,
        others=records - kept,
        originals=request,
        own=own,
        texts_repaired=repaired,
    )


def without_stand_ins(payload: bytes) -> bytes:
    """Remove stand-ins from serialized ``TracesData``: back ends get the application's spans only."""
    if semconv.LOG_RECORDS_SPAN.encode() not in payload:
        return payload
    request = parse_request(payload, encoding="protobuf")
    drop_spans(request, lambda span: span.name == semconv.LOG_RECORDS_SPAN)
    return request.SerializeToString()


def _parse(data: bytes, encoding: Encoding) -> tuple[ExportLogsServiceRequest, int]:
    if encoding == "json":
        if is_flood_of_json(data):
            raise CodecError(_FLOOD)
        return from_json(data, ExportLogsServiceRequest())
    if is_flood_of_logs(data):
        raise CodecError(_FLOOD)
    try:
        return ExportLogsServiceRequest.FromString(data), 0
    except DecodeError as exc:
        body, repaired = repaired_text(data, ExportLogsServiceRequest) or (b"", 0)
        if not repaired:
            raise CodecError(f"not an OTLP protobuf logs request ({len(data)} bytes): {exc}") from exc
    return ExportLogsServiceRequest.FromString(body), repaired


_FLOOD: Final = f"more than {MAX_PARTS:,} parts in one request: send smaller batches"


def _stand_ins(records: Iterable[LogRecord]) -> Iterator[trace_pb2.Span]:
    for record in records:
        named = (each.value.string_value for each in record.attributes if each.key == _EVENT_NAME)
        name = record.event_name or next(named, "")
        if not name.startswith(_CONTENT) or name.startswith(_NO_CONTENT) or not has_valid_ids(record):
            continue
        span = trace_pb2.Span(trace_id=record.trace_id, span_id=record.span_id, name=semconv.LOG_RECORDS_SPAN)
        event = span.events.add(
            name=name, time_unix_nano=record.time_unix_nano or record.observed_time_unix_nano
        )
        event.attributes.extend(record.attributes)
        present = {each.key for each in record.attributes}
        event.attributes.extend(each for each in _body(record.body) if each.key not in present)
        yield span


def _body(body: AnyValue) -> Iterator[KeyValue]:
    """Return the body as attributes: a map's pairs, or a text as ``content``, as the conventions name it."""
    if body.HasField("kvlist_value"):
        yield from body.kvlist_value.values
    elif body.HasField("string_value"):
        yield KeyValue(key="content", value=body)
