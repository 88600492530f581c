"""What every sink promises, on every sink: the port is ``ragtrace.ports.SpanSink``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from ragtrace.backends import MemorySink, open_sink
from ragtrace.ports import SpanSink
from ragtrace.testing import check_sink
from ragtrace.traces.otlp import decode, decode_json, encode
from ragtrace.traces.trace import Span
from tests.unit.backends.servers import GrpcAnswer, HttpAnswer, grpc_server, http_server
from tests.unit.traces.builders import a_span

Taken = Callable[[], Sequence[Span]]
Bench = Callable[[Path], AbstractAsyncContextManager[tuple[SpanSink, Taken]]]


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[tuple[SpanSink, Taken]]:
    sink = MemorySink()
    yield sink, lambda: sink.spans


@asynccontextmanager
async def file(folder: Path) -> AsyncIterator[tuple[SpanSink, Taken]]:
    path = folder / "out.jsonl"
    yield (
        open_sink(f"otlp-file:{path}"),
        lambda: [span for line in path.read_text().splitlines() for span in decode_json(line)],
    )


@asynccontextmanager
async def grpc(folder: Path) -> AsyncIterator[tuple[SpanSink, Taken]]:
    async with grpc_server(GrpcAnswer()) as server:
        yield (
            open_sink(f"grpc://{server.endpoint}"),
            lambda: [span for request in server.requests for span in decode(request)],
        )


@asynccontextmanager
async def http(folder: Path) -> AsyncIterator[tuple[SpanSink, Taken]]:
    with http_server(lambda _: HttpAnswer()) as server:
        yield (
            open_sink(f"{server.url}/v1/traces"),
            lambda: [span for _, _, body in server.requests for span in decode(body)],
        )


SINKS = pytest.mark.parametrize("bench", [memory, file, grpc, http])


@SINKS
async def test_what_send_returned_for_is_at_the_receiver(bench: Bench, tmp_path: Path) -> None:
    async with bench(tmp_path) as (sink, taken):
        await sink.send(encode([a_span(1), a_span(2)]))
        assert list(taken()) == [a_span(1), a_span(2)]
        await sink.aclose()


@SINKS
async def test_many_may_send_at_once(bench: Bench, tmp_path: Path) -> None:
    spans = [a_span(number) for number in range(1, 21)]
    async with bench(tmp_path) as (sink, taken):
        async with asyncio.TaskGroup() as group:
            for span in spans:
                group.create_task(sink.send(encode([span])))
        assert sorted(taken(), key=lambda span: span.span_id) == spans
        await sink.aclose()


@pytest.mark.slow
@SINKS
async def test_what_was_accepted_before_shut_down_is_at_the_receiver(bench: Bench, tmp_path: Path) -> None:
    async with bench(tmp_path) as (sink, taken):
        await check_sink(sink, taken=taken)
