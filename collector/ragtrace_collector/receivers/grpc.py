"""OTLP over gRPC."""

from __future__ import annotations

from typing import Any, Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ragtrace.errors import CodecError, ConfigError
from ragtrace_collector.intake import Intake, Receipt
from ragtrace_collector.store.port import StoreUnavailable

__all__ = ["RETRY_AFTER_S", "export_response", "serve_grpc"]

RETRY_AFTER_S: Final = 5
_SERVICE: Final = "opentelemetry.proto.collector.trace.v1.TraceService"


async def serve_grpc(intake: Intake, endpoint: str, *, max_message_bytes: int) -> tuple[grpc.aio.Server, int]:
    """Start the receiver on ``host:port`` and return the server and the port it listens on.

    Bodies are parsed by the intake and not by gRPC, so that garbage is answered ``INVALID_ARGUMENT``, which
    senders do not retry, and not ``INTERNAL``.

    Raises:
        ConfigError: the address cannot be bound.
    """

    async def export(body: bytes, context: Any) -> ExportTraceServiceResponse:
        try:
            with intake.room.for_request() as reserve:
                reserve(len(body))
                return export_response(await intake.accept(body, encoding="protobuf"))
        except CodecError as exc:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(exc))
        except StoreUnavailable as exc:
            await _put_off(context, str(exc))
        raise AssertionError("abort always raises")

    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.so_reuseport", 0),
        ]
    )
    method = grpc.unary_unary_rpc_method_handler(
        export, response_serializer=ExportTraceServiceResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Export": method}),))
    try:
        port = server.add_insecure_port(endpoint)
    except RuntimeError as exc:
        raise ConfigError(
            f"`receive.grpc`: cannot listen on {endpoint!r}: "
            "the port is taken, or the host is not one of this machine"
        ) from exc
    await server.start()
    return server, port


def export_response(receipt: Receipt) -> ExportTraceServiceResponse:
    """Build the answer to an accepted request: an empty one is the full success (OTLP specification)."""
    if not receipt.rejected_spans:
        return ExportTraceServiceResponse()
    return ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(
            rejected_spans=receipt.rejected_spans, error_message=receipt.reason
        )
    )


async def _put_off(context: Any, reason: str) -> None:
    """Answer ``UNAVAILABLE`` with ``RetryInfo``: every conforming sender tries again after the delay."""
    info = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_S))
    status = status_pb2.Status(code=code_pb2.UNAVAILABLE, message=reason)
    status.details.add().Pack(info)
    await context.abort(
        grpc.StatusCode.UNAVAILABLE,
        reason,
        trailing_metadata=(("grpc-status-details-bin", status.SerializeToString()),),
    )
