"""OTLP over HTTP, protobuf and JSON, and the collector's own status page."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

from google.rpc import code_pb2
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ragtrace.errors import CodecError
from ragtrace.traces.otlp import Encoding
from ragtrace_collector.receive.intake import SIGNALS, Intake, MemoryReservation, Signal, TooSlow
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.web.connections import admitted, who_sends
from ragtrace_collector.web.server import JsonPage, Status, guarded, reader_of
from ragtrace_collector.web.tokens import (
    RequestRefused,
    TokenAuth,
    answer,
    error_answer,
    refusal_of,
    too_large,
    too_slow,
)

_ENCODINGS: Final[Mapping[str, Encoding]] = {
    "application/x-protobuf": "protobuf",
    "application/json": "json",
}
_READ_TIMEOUT_S: Final = 30


def http_app(
    intake: Intake,
    *,
    status: Status,
    access: TokenAuth,
    counters: Counters,
    max_message_bytes: int,
    is_open: bool = False,
) -> Starlette:
    """Build the HTTP application: ``POST /v1/traces`` and ``/v1/logs``, ``GET /status`` and ``GET /healthz``.

    ``is_open`` says that any machine may send: then spans are taken whatever the sender calls the collector.
    """

    async def export(request: Request, signal: Signal) -> Response:
        encoding = _ENCODINGS.get(_content_type(request), "protobuf")
        try:
            if not is_open:
                access.check_host(request.headers.get("host"))
            sender = access.admit(request.headers.get("authorization"), "send")
            _check_encoding(request)
            if sender is not None:
                admitted(request.scope)
            with intake.room.for_request(who_sends(sender, request.client)) as place:
                body = await _read_body(request, max_message_bytes, place)
                receipt = await intake.to_its_end(
                    signal.accept(intake, body, encoding=encoding, sender=sender)
                )
        except ClientDisconnect:
            return Response(status_code=499)
        except (CodecError, StoreUnavailable, RequestRefused) as exc:
            return _refused(encoding, refusal_of(exc), counters)
        return answer(encoding, 200, signal.response(receipt))

    async def show_status(request: Request) -> Response:
        return JsonPage(await status(reader_of(request)))

    async def healthz(_: Request) -> Response:
        return JsonPage({"status": "ok"})

    return Starlette(
        routes=[
            *(Route(each.path, partial(export, signal=each), methods=["POST"]) for each in SIGNALS),
            Route("/status", guarded(show_status, access), methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
        ]
    )


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_encoding(request: Request) -> None:
    content_type = _content_type(request)
    if content_type not in _ENCODINGS:
        raise RequestRefused(
            code_pb2.INVALID_ARGUMENT,
            f"content type {content_type[:100]!r} is not OTLP: send {' or '.join(_ENCODINGS)}",
            http_status=415,
        )


async def _read_body(request: Request, limit: int, place: MemoryReservation) -> bytes:
    try:
        async with place.receiving(_READ_TIMEOUT_S):
            return await _read_pieces(_pieces(request, limit), limit, place)
    except TooSlow:
        raise too_slow() from None
    except TimeoutError:
        raise RequestRefused(
            code_pb2.DEADLINE_EXCEEDED, f"the body did not come within {_READ_TIMEOUT_S} s", http_status=408
        ) from None


async def _read_pieces(pieces: AsyncIterator[bytes], limit: int, place: MemoryReservation) -> bytes:
    body = bytearray()
    async for piece in pieces:
        if len(body) + len(piece) > limit:
            raise too_large(limit)
        place.reserve(len(piece))
        body += piece
    return bytes(body)


def _pieces(request: Request, limit: int) -> AsyncIterator[bytes]:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"identity", "gzip", ""}:
        raise RequestRefused(
            code_pb2.INVALID_ARGUMENT,
            f"content encoding {coding[:100]!r}: send gzip or none",
            http_status=415,
        )
    return inflated(request.stream(), limit) if coding == "gzip" else request.stream()


def _refused(encoding: Encoding, refusal: RequestRefused, counters: Counters) -> Response:
    if refusal.http_status in _COUNTED_HERE:
        counters.add(_COUNTED_HERE[refusal.http_status])
    return error_answer(encoding, refusal)


_COUNTED_HERE: Final = {
    408: Counts.REQUESTS_INVALID,
    413: Counts.REQUESTS_TOO_LARGE,
    415: Counts.REQUESTS_INVALID,
}


_STEP_BYTES: Final = 1 << 20
_MAX_MEMBERS: Final = 1_000
"""Each needs its own decompressor, and an empty one is only twenty bytes long."""


async def inflated(pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Decompress step by step, so that the reader can refuse a zip bomb early.

    Raises:
        RequestRefused: the body is not gzip, is truncated, has trailing bytes, or more than ``limit``
            compressed bytes.
    """
    inflate, whole, packed = _new(), 0, 0
    try:
        async for piece in pieces:
            packed += len(piece)  # a gzip stream can be endless and decompress to nothing
            if packed > limit:
                raise too_large(limit)
            rest = piece
            while rest:
                if inflate.eof:
                    inflate, whole = _new(), _next(whole)
                step = inflate.decompress(rest, _STEP_BYTES)
                rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
                yield step
                await asyncio.sleep(0)  # one piece may unfold to a thousand times its size
    except zlib.error as exc:
        raise _broken(whole, f"the body is not gzip: {exc}") from exc
    if not inflate.eof:
        raise _broken(whole, "the gzip body is truncated")


def _new() -> zlib._Decompress:
    return zlib.decompressobj(wbits=31)


def _next(whole: int) -> int:
    if whole + 1 == _MAX_MEMBERS:
        raise RequestRefused(
            code_pb2.INVALID_ARGUMENT, f"the body has more than {_MAX_MEMBERS:,} gzip members: send fewer"
        )
    return whole + 1


def _broken(whole: int, said: str) -> RequestRefused:
    if whole:
        said = f"after {whole} gzip member{'s' * (whole > 1)} the body has bytes that are not a whole member"
    return RequestRefused(code_pb2.INVALID_ARGUMENT, said)
