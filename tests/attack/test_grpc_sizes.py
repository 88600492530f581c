"""Answers over gRPC that are too large, or have no end: they are cut off, and told as what they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from ragtrace.backends import jaeger
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.jaeger import JaegerGrpcReader
from ragtrace.backends.otlp_sinks import OtlpGrpcSink
from ragtrace.errors import ReadOversized, SendUnconfirmed
from ragtrace.traces.otlp import encode
from tests.attack.hostile_server import MIB
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

PART = encode(rag_trace(0))
MOST = 20 * len(PART)
LARGE = b" " * 10 * MIB

Method = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Any]


@asynccontextmanager
async def serving(service: str, **methods: Method) -> AsyncIterator[str]:
    """Serve methods on a free port; one that yields is a stream."""
    handlers = {
        name: grpc.unary_stream_rpc_method_handler(method)
        if method.__name__.startswith("stream")
        else grpc.unary_unary_rpc_method_handler(method)
        for name, method in methods.items()
    }
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_registered_method_handlers(service, handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def jaeger_saying(method: Method, **access: Any) -> AsyncIterator[JaegerGrpcReader]:
    async with serving("jaeger.api_v3.QueryService", GetTrace=method, GetServices=method) as endpoint:
        reader = JaegerGrpcReader(endpoint, access=ConnectionSettings(**access))
        try:
            yield reader
        finally:
            await reader.aclose()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaeger, "MOST_READ_BYTES", MOST)


@pytest.mark.usefixtures("small")
async def test_a_stream_of_spans_without_end_is_cut_off_at_the_limit_and_ended() -> None:
    sent, ended = [], asyncio.Event()

    async def stream(_: bytes, __: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        try:
            while True:
                sent.append(len(PART))
                yield PART
        finally:
            ended.set()

    async with jaeger_saying(stream, timeout_s=PATIENCE_S) as reader:
        with pytest.raises(ReadOversized, match=r"too large.*read less at once") as caught:
            await reader.get(trace_id_of(0))
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()  # while the error and the reader are still there
    assert caught.value is not None
    assert sum(sent) > MOST


def answering(answer: bytes, *, compression: grpc.Compression) -> Method:
    async def export(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        context.set_compression(compression)
        return answer

    return export


async def test_a_yes_that_is_too_large_is_a_yes_that_nobody_can_read() -> None:
    method = answering(LARGE, compression=grpc.Compression.Gzip)
    async with serving("opentelemetry.proto.collector.trace.v1.TraceService", Export=method) as endpoint:
        sink = OtlpGrpcSink(endpoint)
        with pytest.raises(SendUnconfirmed, match=r"unreadable response.*too large") as caught:
            await sink.send(PART)
        await sink.aclose()
    assert caught.value.again
