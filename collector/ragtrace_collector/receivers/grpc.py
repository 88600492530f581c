"""OTLP over gRPC."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ragtrace.errors import CodecError, ConfigError
from ragtrace_collector.intake import Intake, Receipt
from ragtrace_collector.receivers.access import Access, Sender
from ragtrace_collector.receivers.refusal import Refusal, refusal_of, status_of
from ragtrace_collector.receivers.tls import Certificate
from ragtrace_collector.store.port import StoreUnavailable

__all__ = ["export_response", "serve_grpc"]

_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_STATUS_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_HANDSHAKE_TIMEOUT_MS: Final = 10_000
_STREAMS_A_CONNECTION: Final = 100


async def serve_grpc(
    intake: Intake,
    endpoint: str,
    *,
    access: Access,
    certificate: Certificate | None,
    max_message_bytes: int,
) -> tuple[grpc.aio.Server, int]:
    """Start the receiver on ``host:port`` and return the server and the port it listens on.

    Bodies are parsed by the intake and not by gRPC, so that garbage is answered ``INVALID_ARGUMENT``, which
    senders do not retry, and not ``INTERNAL``.

    Raises:
        ConfigError: the address cannot be bound.
    """

    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.so_reuseport", 0),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
            ("grpc.max_concurrent_streams", _STREAMS_A_CONNECTION),
        ]
    )
    server.add_generic_rpc_handlers((_Exports(intake, access),))
    port = _bind(server, endpoint, certificate)
    await server.start()
    return server, port


class _Exports(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its stubs alone
    """Takes export calls. Who may not send is told so before anything of the message is read."""

    def __init__(self, intake: Intake, access: Access) -> None:
        self._intake = intake
        self._access = access

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return what answers a call of which the headers have come."""
        if handler_call_details.method != _EXPORT:
            return None
        try:
            sender = self._access.admit(_authorization(handler_call_details), "send")
        except Refusal as exc:
            # a stream, of which nothing need be read
            return grpc.stream_unary_rpc_method_handler(partial(_refuse_unread, exc))
        return grpc.unary_unary_rpc_method_handler(
            partial(self._export, sender), response_serializer=ExportTraceServiceResponse.SerializeToString
        )

    async def _export(self, sender: Sender | None, body: bytes, context: Any) -> ExportTraceServiceResponse:
        try:
            with self._intake.room.for_request() as reserve:
                reserve(len(body))
                receipt = await self._intake.accept(body, encoding="protobuf", sender=sender)
            return export_response(receipt)
        except (CodecError, StoreUnavailable, Refusal) as exc:
            await _refuse(context, refusal_of(exc))
        raise AssertionError("abort always raises")


async def _refuse_unread(refusal: Refusal, _: object, context: Any) -> None:
    await _refuse(context, refusal)


def export_response(receipt: Receipt) -> ExportTraceServiceResponse:
    """Build the answer to an accepted request: an empty one is the full success (OTLP specification).

    A reason without rejected spans is a warning to the sender by the same specification.
    """
    if not receipt.reason:
        return ExportTraceServiceResponse()
    return ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(
            rejected_spans=receipt.rejected_spans, error_message=receipt.reason
        )
    )


def _bind(server: grpc.aio.Server, endpoint: str, certificate: Certificate | None) -> int:
    try:
        if certificate is None:
            return server.add_insecure_port(endpoint)
        return server.add_secure_port(endpoint, certificate.for_grpc())
    except RuntimeError as exc:
        raise ConfigError(
            f"`receive.grpc`: cannot listen on {endpoint!r}: "
            "the port is taken, or the host is not one of this machine"
        ) from exc


def _authorization(call: grpc.HandlerCallDetails) -> str | None:
    values = (value for key, value in call.invocation_metadata if key == "authorization")
    return next((value for value in values if isinstance(value, str)), None)


async def _refuse(context: Any, refusal: Refusal) -> None:
    details = status_of(refusal).SerializeToString()
    await context.abort(
        _STATUS_CODES[refusal.code],
        str(refusal),
        trailing_metadata=(("grpc-status-details-bin", details),),
    )
