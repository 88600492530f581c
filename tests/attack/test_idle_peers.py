"""Peers that hold connections, calls and memory and never come to the point: others are served meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from ragtrace_collector.receive import grpc as grpc_receiver
from ragtrace_collector.receive import intake as room
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.web import connections as crowd
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.integration.collector.running import (
    PROTOBUF,
    carriers_in,
    config_of,
    half_a_request,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GOOD = request_of(*rag_trace(0))
TOKEN = "rt_good"
MIB = 1 << 20


def with_token(folder: Path) -> dict[str, Any]:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    return {"tokens": [{"name": "shop", "sha256": digest, "may": ["send", "read"]}]}


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


async def test_who_showed_a_token_keeps_its_connection_when_strangers_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "_MAX_CONNECTIONS", 8)
    monkeypatch.setattr(crowd, "_RESERVED", 4)
    bearer = {**PROTOBUF, "authorization": f"Bearer {TOKEN}"}
    async with running_collector(config_of(tmp_path, receive=with_token(tmp_path))) as collector:
        address = f"http://127.0.0.1:{collector.http_port}"
        async with httpx.AsyncClient(base_url=address, timeout=20) as client:
            first = await client.post("/v1/traces", content=GOOD, headers=bearer)
            used = first.extensions["network_stream"]
            with idle_connections(collector.http_port or 0, 20):
                again = await client.post("/v1/traces", content=GOOD, headers=bearer)
                assert (first.status_code, again.status_code) == (200, 200)
                assert again.extensions["network_stream"] is used
                other = await post(collector, GOOD, bearer)
                assert other.status_code == 200


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


HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one HTTP/2 frame (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: str, value: str) -> bytes:
    """Return one header that no table knows (RFC 7541, section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


HEADERS = b"".join(
    literal(name, value)
    for name, value in (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", EXPORT),
        (":authority", "x"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    )
)


class Unfinished:
    """A gRPC client that begins large messages, sends all of them but the last byte, and waits."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self.sent_bytes = 0
        self.trailers = 0

    async def run(self, streams: int, size: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(HTTP2 + frame(4, 0, 0, b""))
            windows = {0: 65_535}
            left: dict[int, int] = {}
            for stream in range(1, 2 * streams, 2):
                writer.write(frame(1, 4, stream, HEADERS))
                begin = b"\0" + size.to_bytes(4, "big")
                writer.write(frame(0, 0, stream, begin))
                windows[stream], left[stream] = 65_535 - len(begin), size - 1
                windows[0] -= len(begin)
            while True:
                self._send(writer, windows, left)
                await writer.drain()
                await self._hear(reader, writer, windows, left)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _send(self, writer: asyncio.StreamWriter, windows: dict[int, int], left: dict[int, int]) -> None:
        for stream in list(left):
            while (number := min(16_384, windows[0], windows[stream], left[stream])) > 0:
                writer.write(frame(0, 0, stream, bytes(number)))
                windows[0] -= number
                windows[stream] -= number
                left[stream] -= number
                self.sent_bytes += number

    async def _hear(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        windows: dict[int, int],
        left: dict[int, int],
    ) -> None:
        head = await reader.readexactly(9)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big")
        payload = await reader.readexactly(length)
        if kind == 8:  # more may be sent
            windows[stream] = windows.get(stream, 0) + int.from_bytes(payload, "big")
        elif kind == 4 and not flags:
            for start in range(0, length, 6):
                setting = int.from_bytes(payload[start : start + 2], "big")
                if setting == 4:  # the window that streams begin with
                    more = int.from_bytes(payload[start + 2 : start + 6], "big") - 65_535
                    for each in left:
                        windows[each] += more
            writer.write(frame(4, 1, 0, b""))
        elif kind == 6 and not flags:
            writer.write(frame(6, 1, 0, payload))
        elif kind in (1, 3):  # the call has ended
            self.trailers += kind == 1
            left.pop(stream, None)


@asynccontextmanager
async def unfinished(
    port: int | None, *, connections: int, streams: int, size: int
) -> AsyncIterator[list[Unfinished]]:
    clients = [Unfinished(port) for _ in range(connections)]
    tasks = [asyncio.create_task(client.run(streams, size)) for client in clients]
    try:
        yield clients
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def resident_bytes(collector: CollectorProcess) -> int:
    status = Path(f"/proc/{collector.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_unfinished_messages_over_grpc_take_bounded_memory_and_others_are_served(
    tmp_path: Path,
) -> None:
    with collector_process(tmp_path, settings_of(tmp_path, judge={"use": "lexical"})) as collector:
        before = resident_bytes(collector)
        async with unfinished(collector.grpc_port, connections=10, streams=8, size=16 * MIB) as clients:
            await until(lambda: sum(each.sent_bytes for each in clients) > 60 * MIB, deadline_s=60)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
                export = channel.unary_unary(EXPORT)
                for number in range(10):
                    await _until_taken(export, request_of(*rag_trace(number)))
            await until(lambda: sum(each.trailers for each in clients) >= 40, deadline_s=90)
        grown = resident_bytes(collector) - before
        await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == 10)
    print(
        f"peak grew by {grown / MIB:.0f} MiB; sent {sum(each.sent_bytes for each in clients) / MIB:.0f} MiB"
    )
    assert grown < 220 * MIB


async def _until_taken(export: Any, body: bytes) -> None:
    """Send as an exporter does: what is refused for now is sent again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(grpc.aio.AioRpcError):
                await export(body, timeout=30)
                return
            await asyncio.sleep(0.1)


async def test_calls_that_do_not_come_on_are_ended_and_told_when_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_SLOW_S", 0.1)
    async with running_collector(config_of(tmp_path)) as collector:
        async with unfinished(collector.grpc_port, connections=1, streams=8, size=100_000) as (client,):
            await until(lambda: client.sent_bytes >= 4 * 65_000)
            await _send(collector, 0)
            await until(lambda: client.trailers)
        await _send(collector, 1)


async def _send(collector: Collector, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(grpc.aio.AioRpcError):
                await send_grpc(collector, request_of(*rag_trace(number)))
                return


async def test_one_peer_has_so_many_calls_at_once_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_receiver, "_CALLS_A_PEER", 3)
    async with running_collector(config_of(tmp_path)) as collector:
        async with unfinished(collector.grpc_port, connections=1, streams=3, size=100_000) as (client,):
            await until(lambda: client.sent_bytes >= 3 * 65_000)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await send_grpc(collector, GOOD)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            metadata = dict(caught.value.trailing_metadata() or ())
            assert b"RetryInfo" in metadata["grpc-status-details-bin"]
        await _send(collector, 1)
