"""Peers that hold connections, calls and memory and never come to the point: others are served meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import httpx
import pytest

from ragtrace_collector.receive import intake as room
from tests.acceptance.collector_process import collector_process, settings_of
from tests.integration.collector.running import (
    PROTOBUF,
    carriers_in,
    config_of,
    half_a_request,
    post,
    request_of,
    running_collector,
    until,
)
from tests.rag_spans import rag_trace

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GOOD = request_of(*rag_trace(0))


@contextmanager
def idle_connections(port: int, number: int) -> Iterator[list[socket.socket]]:
    """Connect so often, and say nothing."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(number)
        ]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_1010_idle_connections_shut_neither_receiver(tmp_path: Path) -> None:
    with collector_process(tmp_path, settings_of(tmp_path, judge={"use": "lexical"})) as collector:
        ports = (collector.http_port, collector.grpc_port, collector.pages_port)
        with ExitStack() as stack:
            for port in ports:
                assert port is not None
                await asyncio.to_thread(stack.enter_context, idle_connections(port, 1_010))
            address = f"http://127.0.0.1:{collector.http_port}/v1/traces"
            async with httpx.AsyncClient(timeout=20) as client:
                response = await client.post(address, content=GOOD, headers=PROTOBUF)
                ready = await client.get(f"http://127.0.0.1:{collector.pages_port}/readyz")
            assert (response.status_code, ready.status_code) == (200, 200)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
                await channel.unary_unary(EXPORT)(request_of(*rag_trace(1)), timeout=20)
            await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == 2)


async def test_bodies_that_do_not_come_on_make_room_for_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_SLOW_S", 0.1)
    config = config_of(tmp_path, receive={"max_message_bytes": 1_000_000})
    async with running_collector(config) as collector:
        stuck = [await half_a_request(collector.http_port, 990_000) for _ in range(8)]
        await until(lambda: collector.pipeline.intake.room._free_bytes < 100_000)
        await asyncio.sleep(0.2)  # for as long as is called slow
        large = request_of(*rag_trace(1, answer="x" * 400_000))
        assert (await post(collector, large)).status_code == 200
        first, _ = stuck[0]
        assert (await first.readline()).startswith(b"HTTP/1.1 429")
        assert b"retry-after: 5" in (await first.readuntil(b"\r\n\r\n")).lower()
        for _, writer in stuck:
            writer.close()
