"""OTLP over gRPC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2

from ragtrace.errors import CodecError, ConfigError
from ragtrace_collector.receive.intake import SIGNALS, Intake, Receipt, Signal, TooSlow
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.web.connections import who_sends
from ragtrace_collector.web.server import Certificate
from ragtrace_collector.web.tokens import (
    RETRY_AFTER_S,
    RequestRefused,
    TokenAuth,
    TokenSender,
    refusal_of,
    status_of,
    too_slow,
)

_SIGNALS: Final = {signal.method: signal for signal in SIGNALS}
_STATUS_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_HANDSHAKE_TIMEOUT_MS: Final = 10_000
_STREAMS_A_CONNECTION: Final = 100
_CALLS_A_PEER: Final = 400
_READ_TIMEOUT_S: Final = 30
_MAX_CONNECTIONS: Final = 4_000
_IDLE_MS: Final = 300_000
"""A connection without a call is ended after this long: its sender makes another when it has something."""
_WINDOW_BYTES: Final = 1 << 20
"""What a sender may send ahead: a usual request, which else would wait for several permissions to go on."""
_SILENT_MS: Final = 60_000
"""A connection on which nothing comes is asked whether its other end is still there."""


async def serve_grpc(
    intake: Intake,
    endpoint: str,
    *,
    access: TokenAuth,
    certificate: Certificate | None,
    max_message_bytes: int,
    is_shared: bool = False,
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
            ("grpc.so_reuseport", int(is_shared)),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
            ("grpc.max_concurrent_streams", _STREAMS_A_CONNECTION),
            ("grpc.max_allowed_incoming_connections", _MAX_CONNECTIONS),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
            ("grpc.keepalive_time_ms", _SILENT_MS),
            ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
            ("grpc.http2.bdp_probe", 0),  # or it takes in megabytes of what nobody reads yet
        ]
    )
    server.add_generic_rpc_handlers((_Exports(intake, access),))
    port = _bind(server, endpoint, certificate)
    await server.start()
    return server, port


class _Exports(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its stubs alone
    """Takes export calls. Who may not send is told so before anything of the message is read.

    Calls are streams to gRPC, so that it is we who say when a message is received: it keeps what it receives.
    """

    def __init__(self, intake: Intake, access: TokenAuth) -> None:
        self._intake = intake
        self._access = access
        self._calls: Counter[str] = Counter()
        """Calls that are open, by who sends."""

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return what answers a call of which the headers have come."""
        signal = _SIGNALS.get(handler_call_details.method)
        if signal is None:
            return None
        try:
            sender = self._access.admit(_authorization(handler_call_details), "send")
        except RequestRefused as exc:
            return grpc.stream_unary_rpc_method_handler(partial(_refuse_unread, exc))
        return grpc.stream_unary_rpc_method_handler(
            partial(self._export, sender, signal),
            response_serializer=lambda message: message.SerializeToString(),
        )

    async def _export(
        self, sender: TokenSender | None, signal: Signal, _messages: object, context: Any
    ) -> Message:
        who = who_sends(sender, _address(context.peer()))
        try:
            with self._one_call(who):
                body = await self._receive(context, who)
                receipt = await self._intake.to_its_end(self._take(body, signal, sender, who))
            return signal.response(receipt)
        except (CodecError, StoreUnavailable, RequestRefused) as exc:
            await _refuse(context, refusal_of(exc))
        raise AssertionError("abort always raises")

    @contextmanager
    def _one_call(self, who: str) -> Iterator[None]:
        if self._calls[who] >= _CALLS_A_PEER:
            raise RequestRefused(
                code_pb2.RESOURCE_EXHAUSTED,
                f"more than {_CALLS_A_PEER} calls at once: wait for answers, or send larger batches",
                retry_after_s=RETRY_AFTER_S,
            )
        self._calls[who] += 1
        try:
            yield
        finally:
            self._calls[who] -= 1
            if not self._calls[who]:
                del self._calls[who]

    async def _receive(self, context: Any, who: str) -> bytes:
        room = self._intake.room
        try:
            with room.for_request(who) as place:
                async with room.for_unread(place, _READ_TIMEOUT_S):
                    return await _only_message(context)
        except TooSlow:
            raise too_slow() from None
        except TimeoutError:
            raise RequestRefused(
                code_pb2.DEADLINE_EXCEEDED,
                f"the message did not come within {_READ_TIMEOUT_S} s",
                http_status=408,
            ) from None

    async def _take(self, body: bytes, signal: Signal, sender: TokenSender | None, who: str) -> Receipt:
        with self._intake.room.for_request(who) as place:
            place.reserve(len(body))
            return await signal.accept(self._intake, body, encoding="protobuf", sender=sender)


async def _only_message(context: Any) -> bytes:
    """Return the message of a call. gRPC's iterator of messages would keep it in a cycle."""
    message = await context.read()
    if not isinstance(message, bytes):  # `EOF`
        raise RequestRefused(code_pb2.INVALID_ARGUMENT, "the call holds no message")
    if isinstance(await context.read(), bytes):
        raise RequestRefused(code_pb2.INVALID_ARGUMENT, "the call holds more than one message")
    return message


async def _refuse_unread(refusal: RequestRefused, _: object, context: Any) -> None:
    await _refuse(context, refusal)


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


def _address(peer: str) -> tuple[str, int] | None:
    """Read the address in gRPC's name of a peer: ``ipv4:127.0.0.1:4711``, ``ipv6:%5B::1%5D:4711``."""
    _, _, address = unquote(peer).partition(":")
    host = address.rpartition(":")[0].strip("[]")
    return (host, 0) if host else None


def _authorization(call: grpc.HandlerCallDetails) -> str | None:
    values = (value for key, value in call.invocation_metadata if key == "authorization")
    return next((value for value in values if isinstance(value, str)), None)


async def _refuse(context: Any, refusal: RequestRefused) -> None:
    details = status_of(refusal).SerializeToString()
    await context.abort(
        _STATUS_CODES[refusal.code],
        str(refusal),
        trailing_metadata=(("grpc-status-details-bin", details),),
    )
