"""The signals of OTLP that the receivers take: spans, and log records, which may hold messages of spans."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ragtrace_collector.receive.intake import Intake, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Where a signal is received, what takes it, and how its sender is answered."""

    path: str
    """Over HTTP."""
    method: str
    """Over gRPC."""
    accept: Callable[..., Coroutine[Any, Any, Receipt]]
    response: Callable[[Receipt], Message]


def _traces_response(receipt: Receipt) -> Message:
    """An empty answer is the full success; a reason with nothing rejected is a warning (OTLP)."""
    if not receipt.reason:
        return ExportTraceServiceResponse()
    told = ExportTracePartialSuccess(rejected_spans=receipt.rejected, error_message=receipt.reason)
    return ExportTraceServiceResponse(partial_success=told)


def _logs_response(receipt: Receipt) -> Message:
    if not receipt.reason:
        return ExportLogsServiceResponse()
    told = ExportLogsPartialSuccess(rejected_log_records=receipt.rejected, error_message=receipt.reason)
    return ExportLogsServiceResponse(partial_success=told)


SIGNALS: Final = (
    Signal(
        path="/v1/traces",
        method="/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        accept=Intake.accept,
        response=_traces_response,
    ),
    Signal(
        path="/v1/logs",
        method="/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        accept=Intake.accept_logs,
        response=_logs_response,
    ),
)
