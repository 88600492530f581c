"""OTLP over HTTP, protobuf and JSON, and the collector's own status page."""

from __future__ import annotations

import asyncio
import json
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import uvicorn
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ragtrace.errors import CodecError, ConfigError
from ragtrace.traces.otlp import Encoding
from ragtrace_collector.intake import Intake, Reserve
from ragtrace_collector.receivers.grpc import RETRY_AFTER_S, export_response
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.telemetry import Counters, Counts

__all__ = ["HttpServer", "Status", "http_app", "open_socket"]

Status = Callable[[], Awaitable[Mapping[str, Mapping[str, int]]]]

_ENCODINGS: Final[Mapping[str, Encoding]] = {
    "application/x-protobuf": "protobuf",
    "application/json": "json",
}
_INFLATE_STEP_BYTES: Final = 1 << 20
_READ_TIMEOUT_S: Final = 30


class _RefusedError(Exception):
    """A request that is answered with an error, and why."""

    def __init__(self, http_status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code


def http_app(intake: Intake, *, status: Status, counters: Counters, max_message_bytes: int) -> Starlette:
    """Build the HTTP application: ``POST /v1/traces``, ``GET /status`` and ``GET /healthz``."""

    async def export(request: Request) -> Response:
        encoding: Encoding = "protobuf"
        try:
            encoding = _encoding(request)
            with intake.room.for_request() as reserve:
                body = await _read_body(request, max_message_bytes, reserve)
                receipt = await intake.accept(body, encoding=encoding)
        except CodecError as exc:
            return _error(encoding, 400, code_pb2.INVALID_ARGUMENT, str(exc))
        except StoreUnavailable as exc:
            return _error(encoding, 503, code_pb2.UNAVAILABLE, str(exc), retry_after_s=RETRY_AFTER_S)
        except ClientDisconnect:
            return Response(status_code=499)
        except _RefusedError as exc:
            counters.add(Counts.REQUESTS_TOO_LARGE if exc.http_status == 413 else Counts.REQUESTS_INVALID)
            return _error(encoding, exc.http_status, exc.code, str(exc))
        return _answer(encoding, 200, export_response(receipt))

    async def show_status(_: Request) -> Response:
        return JSONResponse(await status())

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return Starlette(
        routes=[
            Route("/v1/traces", export, methods=["POST"]),
            Route("/status", show_status, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
        ]
    )


def open_socket(endpoint: str) -> socket.socket:
    """Bind ``host:port``.

    Raises:
        ConfigError: the address cannot be bound.
    """
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"`receive.http`: cannot listen on {endpoint!r}: {exc}") from exc


class HttpServer(uvicorn.Server):
    """uvicorn as one task among others: the service owns the signals."""

    def __init__(self, app: Starlette, listening: socket.socket) -> None:
        self._listening = listening
        super().__init__(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=5
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the socket until stopped."""
        await super().serve(sockets or [self._listening])

    def stop(self) -> None:
        """Accept no more requests; ``serve`` returns when those under way are answered."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _encoding(request: Request) -> Encoding:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _ENCODINGS:
        raise _RefusedError(
            415,
            code_pb2.INVALID_ARGUMENT,
            f"content type {content_type[:100]!r} is not OTLP: send {' or '.join(_ENCODINGS)}",
        )
    return _ENCODINGS[content_type]


async def _read_body(request: Request, limit: int, reserve: Reserve) -> bytes:
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await _read_pieces(_pieces(request, limit), limit, reserve)
    except TimeoutError:
        raise _RefusedError(
            408, code_pb2.DEADLINE_EXCEEDED, f"the body did not come within {_READ_TIMEOUT_S} s"
        ) from None


async def _read_pieces(pieces: AsyncIterator[bytes], limit: int, reserve: Reserve) -> bytes:
    body = bytearray()
    async for piece in pieces:
        if len(body) + len(piece) > limit:
            raise _too_large(limit)
        reserve(len(piece))
        body += piece
    return bytes(body)


def _pieces(request: Request, limit: int) -> AsyncIterator[bytes]:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"identity", "gzip", ""}:
        raise _RefusedError(
            415, code_pb2.INVALID_ARGUMENT, f"content encoding {coding[:100]!r}: send gzip or none"
        )
    return _inflated(request.stream(), limit) if coding == "gzip" else request.stream()


async def _inflated(pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Decompress step by step, so that a bomb is refused before it has unfolded."""
    inflate = zlib.decompressobj(wbits=31)
    packed = 0
    try:
        async for piece in pieces:
            packed += len(piece)  # gzip can also go on for ever without saying anything
            if packed > limit:
                raise _too_large(limit)
            while piece and not inflate.eof:
                step = inflate.decompress(piece, _INFLATE_STEP_BYTES)
                piece = inflate.unconsumed_tail
                yield step
            if piece or inflate.unused_data:
                raise _RefusedError(
                    400,
                    code_pb2.INVALID_ARGUMENT,
                    "there are bytes behind the gzip body: send one gzip member",
                )
    except zlib.error as exc:
        raise _RefusedError(400, code_pb2.INVALID_ARGUMENT, f"the body is not gzip: {exc}") from exc
    if not inflate.eof:
        raise _RefusedError(400, code_pb2.INVALID_ARGUMENT, "the gzip body is cut off")


def _too_large(limit: int) -> _RefusedError:
    return _RefusedError(
        413,
        code_pb2.RESOURCE_EXHAUSTED,
        f"the request is larger than `receive.max_message_bytes` ({limit}): send smaller batches",
    )


def _answer(encoding: Encoding, http_status: int, message: Message) -> Response:
    if encoding == "json":
        content = json.dumps(json_format.MessageToDict(message)).encode()
        return Response(content, status_code=http_status, media_type="application/json")
    return Response(message.SerializeToString(), status_code=http_status, media_type="application/x-protobuf")


def _error(
    encoding: Encoding, http_status: int, code: int, message: str, *, retry_after_s: int | None = None
) -> Response:
    """Answer with a ``google.rpc.Status`` in the sender's own encoding (OTLP/HTTP specification)."""
    response = _answer(encoding, http_status, status_pb2.Status(code=code, message=message))
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response
