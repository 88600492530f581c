"""What OTLP says of a receiver's answers: https://opentelemetry.io/docs/specs/otlp/."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

_REFUSED: Final = frozenset({400, 401, 403, 408, 413, 415})
_LATER: Final = frozenset({429, 503})
_TYPES: Final = {"application/json": "json", "application/x-protobuf": "protobuf"}
_CODES: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
    }
)


def check_http(status: int, headers: dict[str, str], content: bytes, *, sent_type: str) -> None:
    """Assert that an answer to ``POST /v1/traces`` is one that OTLP/HTTP allows."""
    assert status == 200 or status in _REFUSED | _LATER, f"status {status}"
    answered = headers["content-type"]
    assert answered == (sent_type if sent_type in _TYPES else "application/x-protobuf")
    if status == 200:
        check_taken(_read(content, ExportTraceServiceResponse, answered))
        return
    error = _read(content, status_pb2.Status, answered)
    assert error.message
    assert error.code
    if status in _LATER:
        assert int(headers["retry-after"]) > 0


def check_taken(answer: ExportTraceServiceResponse) -> None:
    """Assert that what was rejected has a reason, and that a full success says nothing."""
    partial = answer.partial_success
    assert partial.rejected_spans >= 0
    assert bool(partial.error_message) or not partial.rejected_spans
    assert answer.HasField("partial_success") is bool(partial.rejected_spans or partial.error_message)


def check_grpc_error(error: grpc.RpcError) -> None:
    """Assert that an error is one that OTLP/gRPC lists, and that a sender knows when to come back."""
    assert isinstance(error, grpc.Call)
    assert error.code() in _CODES, f"{error.code()}: {error.details()}"
    assert error.details()
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        assert _retry_s(error) > 0


def _retry_s(error: grpc.Call) -> float:
    trailing = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    for detail in status.details:
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.ToTimedelta().total_seconds())
    return 0


def _read(content: bytes, kind: type, content_type: str):  # type: ignore[no-untyped-def]
    if _TYPES[content_type] == "json":
        return json_format.Parse(content, kind())
    return kind.FromString(content)
