"""OTLP log records: content that they hold of spans, and evaluations as such records.

OpenTelemetry's GenAI instrumentations write messages as events of the logs signal: by default the older ones
(`gen_ai.user.message`, `gen_ai.choice`, conventions 1.28 to 1.36), and with ``EVENT_ONLY`` the newer ones
(`gen_ai.client.inference.operation.details`, since 1.37). Such a record becomes an event of the span that it
names: here on a stand-in with the span's ids, which is kept like a span, and which `Trace.of` joins to the
span, whichever comes first.

The GenAI conventions (``model/gen-ai/events.yaml``) make the result of an evaluation an event, which is a log
record with a name, parented to the judged span: its ids are that span's. A wrong claim has one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError, EncodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.errors import CodecError
from ragtrace.model import AttributeValue, Label, VerdictLabel
from ragtrace.traces._otlp_values import fill_attributes, from_json, has_valid_ids
from ragtrace.traces.carrier_table import integer_of, moment_of
from ragtrace.traces.otlp import (
    MAX_PARTS,
    Encoding,
    drop_spans,
    is_flood_of_json,
    is_flood_of_logs,
    parse_request,
    repaired_text,
)
from ragtrace.traces.trace import Span, SpanEvent, scrub_surrogates

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


_WRONG: Final = frozenset(
    f"{semconv.CLAIM_EVENT_PREFIX}{label.value}"
    for label in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
)
_SEVERITIES: Final = {
    Label.PASS.value: logs_pb2.SEVERITY_NUMBER_INFO,
    Label.SKIPPED.value: logs_pb2.SEVERITY_NUMBER_INFO,
    Label.FAIL.value: logs_pb2.SEVERITY_NUMBER_WARN,
}
_OF_CARRIER: Final = (
    semconv.RESPONSE_ID,
    semconv.SCHEMA,
    semconv.URL,
    semconv.TARGET_MODEL,
    semconv.TARGET_PROMPT_VERSION,
    semconv.EVAL_MODE,
    semconv.EVAL_SUPERSEDES,
    semconv.EVAL_COMPROMISED,
    semconv.SAMPLE_RULE,
    semconv.SAMPLE_PROBABILITY,
)


def encode_evaluation_logs(spans: Iterable[Span]) -> bytes:
    """Encode the log records of all carriers among the spans as an ``ExportLogsServiceRequest``.

    Each result of a metric, and each contradicted or unsupported claim on the carrier, is a record, with the
    resource of the judged application. The same carrier gives the same records. Other spans have none.

    Raises:
        CodecError: a value does not fit into OTLP.
    """
    request = ExportLogsServiceRequest()
    for span in spans:
        if span.scope.name == semconv.SCOPE_EVALUATION and span.parent_span_id is not None:
            _add(request, span)
    return request.SerializeToString()


def _add(request: ExportLogsServiceRequest, carrier: Span) -> None:
    told = [
        event for event in carrier.events if event.name == semconv.EVALUATION_RESULT or event.name in _WRONG
    ]
    if not told:
        return
    of_resource = request.resource_logs.add(schema_url=carrier.resource.schema_url)
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name = carrier.scope.name
    of_scope.scope.version = scrub_surrogates(carrier.scope.version)
    judged_ns = _judged_ns(carrier)
    try:
        fill_attributes(of_resource.resource.attributes, carrier.resource.attributes)
        for number, event in enumerate(told):
            # a step apart: log stores drop records of one time and one text
            _fill(of_scope.log_records.add(), carrier, event, time_ns=judged_ns + number)
    except (ValueError, TypeError, EncodeError) as exc:
        raise CodecError("a carrier holds a value that OTLP cannot hold: an id, a number or a type") from exc


def _fill(record: logs_pb2.LogRecord, carrier: Span, event: SpanEvent, *, time_ns: int) -> None:
    is_result = event.name == semconv.EVALUATION_RESULT
    label = _label(event) if is_result else event.name.removeprefix(semconv.CLAIM_EVENT_PREFIX)
    severity = (
        _SEVERITIES.get(label, logs_pb2.SEVERITY_NUMBER_ERROR) if is_result else logs_pb2.SEVERITY_NUMBER_WARN
    )
    record.event_name = event.name
    record.time_unix_nano = record.observed_time_unix_nano = time_ns
    record.severity_number = severity
    record.severity_text = logs_pb2.SeverityNumber.Name(severity).removeprefix("SEVERITY_NUMBER_")
    record.trace_id = bytes.fromhex(carrier.trace_id)
    record.span_id = bytes.fromhex(carrier.parent_span_id or "")
    record.flags = carrier.flags & 0xFF
    record.body.string_value = scrub_surrogates(
        _result_line(event, label) if is_result else _claim_line(event, label)
    )
    fill_attributes(record.attributes, dict(_attributes(carrier, event)))


def _attributes(carrier: Span, event: SpanEvent) -> Iterator[tuple[str, AttributeValue]]:
    for key in _OF_CARRIER:
        if key in carrier.attributes:
            yield key, carrier.attributes[key]
    yield semconv.CARRIER_SPAN_ID, carrier.span_id
    if event.name == semconv.EVALUATION_RESULT:
        yield semconv.EVALUATION_LABEL, _label(event)
    yield from event.attributes.items()


def _label(result: SpanEvent) -> str:
    """Return the label of a result; a carrier gives a failure's error type only."""
    return str(result.attributes.get(semconv.EVALUATION_LABEL, Label.ERROR.value))


def _result_line(result: SpanEvent, label: str) -> str:
    """Return the text of a record for people: no content."""
    told = result.attributes
    score, reason = told.get(semconv.EVALUATION_SCORE), told.get(semconv.EVAL_SKIP_REASON)
    rest = f"{score:.2f}" if isinstance(score, float) else told.get(semconv.ERROR_TYPE, reason)
    line = f"{told.get(semconv.EVALUATION_NAME)!s} {label}"
    return line if rest is None else f"{line}: {rest!s}"


def _claim_line(claim: SpanEvent, label: str) -> str:
    told = claim.attributes
    return f"{told.get(semconv.CLAIM_METRIC)!s}: claim {told.get(semconv.CLAIM_INDEX)!s} {label}"


def _judged_ns(carrier: Span) -> int:
    """Return when the answer was judged: the carrier's own time may be that of the answer."""
    began_ns = moment_of(carrier.attributes, semconv.EVAL_STARTED_AT)
    if began_ns is None:
        return carrier.end_ns
    return began_ns + (integer_of(carrier.attributes, semconv.EVAL_DURATION_MS) or 0) * 1_000_000
