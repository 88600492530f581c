"""Evaluations as log records: OpenTelemetry's event ``gen_ai.evaluation.result``, and one per wrong claim.

The GenAI conventions (``model/gen-ai/events.yaml``) make the result of an evaluation an event, which is a log
record with a name, parented to the judged span: its trace id and span id are that span's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from google.protobuf.message import EncodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1 import logs_pb2

from ragtrace import semconv
from ragtrace.errors import CodecError
from ragtrace.model import AttributeValue, Label, VerdictLabel
from ragtrace.traces._otlp_values import fill_attributes
from ragtrace.traces.text import scrub_surrogates
from ragtrace.traces.trace import Span, SpanEvent

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
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z")


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
    duration_ms = carrier.attributes.get(semconv.EVAL_DURATION_MS)
    found = _MOMENT.fullmatch(str(carrier.attributes.get(semconv.EVAL_STARTED_AT, "")))
    if found is None:
        return carrier.end_ns
    began_s = int(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp())
    took_ns = duration_ms * 1_000_000 if isinstance(duration_ms, int) else 0
    return began_s * 1_000_000_000 + int(found[2]) + took_ns
