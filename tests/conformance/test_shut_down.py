"""What every sink promises, and the law of shut-down: what was acknowledged is at the sink, or on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from ragtrace.backends import open_sink
from ragtrace.errors import SendError
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import carriers_in, config_of, post, request_of, running_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import GrpcAnswer, HttpAnswer, grpc_server, http_server

Taken = Callable[[], Sequence[Span]]
Receiver = Callable[[Path], AbstractAsyncContextManager[tuple[str, Taken]]]

TRACES = 30
STOP_AFTER = 5


@asynccontextmanager
async def file(folder: Path) -> AsyncIterator[tuple[str, Taken]]:
    yield f"otlp-file:{folder / 'out.jsonl'}", lambda: carriers_in(folder / "out.jsonl")


@asynccontextmanager
async def grpc(folder: Path) -> AsyncIterator[tuple[str, Taken]]:
    async with grpc_server(GrpcAnswer()) as server:
        yield f"grpc://{server.endpoint}", lambda: [each for body in server.requests for each in decode(body)]


@asynccontextmanager
async def http(folder: Path) -> AsyncIterator[tuple[str, Taken]]:
    with http_server(lambda _: HttpAnswer()) as server:
        endpoint = f"{server.url}/v1/traces"
        yield endpoint, lambda: [each for _, _, body in server.requests for each in decode(body)]


@pytest.mark.slow
@pytest.mark.parametrize("receiver", [file, grpc, http])
async def test_what_a_sink_accepted_before_shut_down_is_at_the_receiver(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with receiver(tmp_path) as (endpoint, taken):
        sink = open_sink(endpoint)
        first, *spans = (span for number in range(21) for span in rag_trace(number)[:1])
        await sink.send(encode([first]))
        assert first in taken()

        async def accepted(span: Span) -> bool:
            try:
                await sink.send(encode([span]))
            except SendError:
                return False
            return True

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            sends = [group.create_task(accepted(span)) for span in spans]
            await asyncio.sleep(0)  # they are under way
            await sink.aclose()
        await sink.aclose()
        at_receiver = taken()
    lost = [
        span for span, send in zip(spans, sends, strict=True) if send.result() and span not in at_receiver
    ]
    assert not lost


@pytest.mark.slow
@pytest.mark.parametrize("receiver", [file, grpc])
async def test_what_was_acknowledged_before_shut_down_is_judged_by_then_or_after_the_next_start(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with receiver(tmp_path) as (endpoint, taken):
        config = config_of(tmp_path, export=[{"endpoint": endpoint}], drain_timeout="0s")
        acknowledged = await send_until_stopped(running_collector(config))
        async with running_collector(config) as collector:
            while await waits(collector, for_answers=len(acknowledged)):  # noqa: ASYNC110 -- stages' work
                await asyncio.sleep(0.02)
            ledger = await collector.pipeline.store.ledger()
        carriers = [span.trace_id for span in taken()]
    assert len(acknowledged) >= STOP_AFTER
    assert set(acknowledged) <= set(carriers)
    assert ledger.adds_up
    assert ledger.seen == len(set(carriers))


async def waits(collector: Collector, *, for_answers: int) -> bool:
    """Say whether something is yet to be done."""
    ledger = await collector.pipeline.store.ledger()
    return ledger.ended < for_answers or any(ledger.left().values())


async def send_until_stopped(running: AbstractAsyncContextManager[Collector]) -> Sequence[str]:
    """Send traces at once, stop when some were acknowledged, and return all that were."""
    acknowledged: list[str] = []
    enough = asyncio.Event()

    async def send(number: int) -> None:
        try:
            answer = await post(collector, request_of(*rag_trace(number)))
        except httpx.TransportError:  # it was stopped: nothing was acknowledged
            return
        if answer.status_code == 200:
            acknowledged.append(trace_id_of(number))
        if len(acknowledged) >= STOP_AFTER:
            enough.set()

    async with asyncio.TaskGroup() as group, running as collector:
        for number in range(TRACES):
            group.create_task(send(number))
        await enough.wait()
    return acknowledged
