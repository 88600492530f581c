"""The sink for OTLP over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, cast

from ragtrace.backends._http_sink import LONGEST_BODY
from ragtrace.backends._otlp_answer import TRACES, Signal, parse_answer, raise_for_rejected_items
from ragtrace.errors import SendError, SendRefused, SendRejected, SendRetryable, SendUnconfirmed
from ragtrace.http.retry import OTLP
from ragtrace.http.tls import ClientTls

if TYPE_CHECKING:
    import grpc


_REFUSING = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"})
"""Errors of the sender or the address, whatever the payload."""


class OtlpGrpcSink:
    """Send unchanged request bytes to an OTLP/gRPC receiver at ``host:port``.

    ``signal`` is what the requests carry: spans, unless told otherwise.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        insecure: bool = True,
        tls: ClientTls | None = None,
        timeout_s: float = 10,
        compression: Literal["none", "gzip"] = "none",
        signal: Signal = TRACES,
    ) -> None:
        self._endpoint = endpoint
        self._metadata = tuple((key.lower(), value) for key, value in (headers or {}).items())
        self._insecure = insecure
        self._pem = tls.pem() if tls else ()
        self._timeout_s = timeout_s
        self._compression = compression
        self._signal = signal
        self._channel: grpc.aio.Channel | None = None

    @property
    def name(self) -> str:
        """``grpc://host:port`` or ``grpcs://host:port``."""
        return f"{'grpc' if self._insecure else 'grpcs'}://{self._endpoint}"

    async def send(self, request: bytes) -> None:
        """Send the request and wait for the receiver's response.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendUnconfirmed: success by its status, with an unreadable response.
            SendRejected: refused, in whole or in part.
            SendRefused: every request is refused.
        """
        import grpc  # heavy, deferred: only for senders over gRPC

        export = self._open().unary_unary(
            self._signal.method,
            request_serializer=None,  # the bytes are sent unchanged
            response_deserializer=None,  # gRPC would report an unreadable response as a receiver error
        )
        try:
            answer = await export(request, metadata=self._metadata, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as exc:
            raise self._error(exc) from exc
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise SendRetryable(f"{self.name} was closed before it responded") from exc
        parsed = parse_answer(answer, self._signal)
        if parsed is None:
            raise SendUnconfirmed(f"{self.name} answered OK with an unreadable response", again=True)
        raise_for_rejected_items(self.name, parsed)

    async def aclose(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    def _open(self) -> grpc.aio.Channel:
        # not in __init__: a channel belongs to the event loop that is running at its creation
        if self._channel is None:
            import grpc

            gzip = grpc.Compression.Gzip if self._compression == "gzip" else grpc.Compression.NoCompression
            options = [("grpc.max_receive_message_length", LONGEST_BODY)]
            if self._insecure:
                self._channel = grpc.aio.insecure_channel(self._endpoint, options, gzip)
            else:
                credentials = grpc.ssl_channel_credentials(*self._pem)
                self._channel = grpc.aio.secure_channel(self._endpoint, credentials, options, gzip)
        return self._channel

    def _error(self, exc: grpc.aio.AioRpcError) -> SendError:
        code, details = exc.code().name, exc.details() or ""
        if _is_too_large(code, details) and self._is_about_the_answer(details):
            message = f"{self.name} answered OK with an unreadable response: it is too large"
            return SendUnconfirmed(message, again=True)
        message = f"{self.name} answered {code}: {details}"
        if code in _REFUSING:
            return SendRefused(message)
        if code not in OTLP.codes or _is_too_large(code, details):
            return SendRejected(message)
        return SendRetryable(message, retry_after_s=_retry_after_s(exc))

    def _is_about_the_answer(self, details: str) -> bool:
        """Say whether the response is too large, and not the request: only a success has a response.

        gRPC does not say so of a packed one, but a request that was not packed is never unpacked.
        """
        return "CLIENT:" in details or ("Decompressed" in details and self._compression == "none")


def _is_too_large(code: str, details: str) -> bool:
    # gRPC reports it with the code of a busy receiver, but it is final
    return code == "RESOURCE_EXHAUSTED" and "larger than max" in details


def _retry_after_s(exc: grpc.aio.AioRpcError) -> float | None:
    """Read google.rpc.RetryInfo from the trailing metadata."""
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    for key, value in cast("Iterable[tuple[str, str | bytes]]", exc.trailing_metadata() or ()):
        if key != "grpc-status-details-bin" or not isinstance(value, bytes):
            continue
        try:
            for detail in status_pb2.Status.FromString(value).details:
                retry_info = error_details_pb2.RetryInfo()
                if detail.Unpack(retry_info):
                    # not as a timedelta, which overflows at 300,000,000,000 seconds
                    return float(retry_info.retry_delay.seconds + retry_info.retry_delay.nanos / 1e9)
        except DecodeError:
            return None
    return None
