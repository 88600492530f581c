"""Interpret an OTLP receiver's response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace.errors import SendRejected

Response: TypeAlias = ExportTraceServiceResponse | ExportLogsServiceResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """What OTLP carries: where its requests go, and what answers them."""

    path: str
    method: str
    """Of gRPC."""
    response: type[Response]
    noun: str


TRACES: Final = Signal(
    path="/v1/traces",
    method="/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    response=ExportTraceServiceResponse,
    noun="spans",
)
LOGS: Final = Signal(
    path="/v1/logs",
    method="/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    response=ExportLogsServiceResponse,
    noun="log records",
)


def parse_answer(body: bytes, signal: Signal = TRACES) -> Response | None:
    """Parse a response in protobuf or JSON, which some receivers always send; ``None`` if it is neither."""
    try:
        return signal.response.FromString(body)
    except DecodeError:
        pass
    try:
        return json_format.Parse(body, signal.response(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError):
        return None


def raise_for_rejected_items(sink: str, answer: Response) -> None:
    """Raise SendRejected if the receiver took only a part: OTLP forbids retrying the same request.

    By the specification, a message without rejected items is a warning, and the request was accepted.
    """
    if isinstance(answer, ExportLogsServiceResponse):
        rejected, noun = answer.partial_success.rejected_log_records, LOGS.noun
    else:
        rejected, noun = answer.partial_success.rejected_spans, TRACES.noun
    if rejected:
        why = answer.partial_success.error_message or "no reason given"
        raise SendRejected(f"{sink} rejected {rejected} {noun}: {why}", partial=True)
