"""What servers are sent: batches of spans as an exporter makes them, each with trace ids of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import replace

import aiohttp
import grpc

from ragtrace.traces.otlp import encode
from tests.benchmarks.judge_cost import subject
from tests.benchmarks.measured import Server
from tests.rag_spans import rag_trace, trace_id_of

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SPANS = 100
"""In a request."""


class Load:
    """A stream of requests, none of which was sent before."""

    def __init__(self, *, spans_a_trace: int, at_once: int) -> None:
        self._traces = SPANS // spans_a_trace
        self._template = _template(spans_a_trace)
        self._at_once = at_once

    def requests(self, number: int) -> list[bytes]:
        return [self._request() for _ in range(number)]

    async def drive(self, server: Server, requests: list[bytes]) -> float:
        """Send requests, several at once; return the CPU µs a span until the server has come to rest."""
        waiting, before = iter(requests), server.cpu_s()
        send = _send_grpc if server.protocol == "grpc" else _send_http
        async with asyncio.TaskGroup() as senders:
            for _ in range(self._at_once):
                senders.create_task(send(server, waiting))
        cpu_s = await asyncio.to_thread(server.at_rest)
        return (cpu_s - before) / (len(requests) * SPANS) * 1e6

    def _request(self) -> bytes:
        request = self._template
        for trace in range(self._traces):
            request = request.replace(bytes.fromhex(trace_id_of(trace)), secrets.token_bytes(16))
        return request


def _template(spans_a_trace: int) -> bytes:
    spans = []
    for position in range(SPANS):
        trace, within = divmod(position, spans_a_trace)
        chunks = [_text(5 * position + number, 600) for number in range(5)]
        span = rag_trace(trace, answer=_text(position, 1_200), chunks=chunks)[within % 3]
        parent = None if within == 0 else f"{trace * spans_a_trace + 1:016x}"
        spans.append(replace(span, span_id=f"{position + 1:016x}", parent_span_id=parent))
    return encode(spans)


def _text(number: int, length: int) -> str:
    """Return English prose: what searches, checks and compresses texts takes its time with real ones."""
    prose = " ".join(subject.CHUNKS)
    start = number * 97 % len(prose)
    return (prose * (length // len(prose) + 2))[start : start + length]


async def _send_grpc(server: Server, requests: Iterator[bytes]) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        export = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        for request in requests:
            await export(request)


async def _send_http(server: Server, requests: Iterator[bytes]) -> None:
    headers = {"content-type": "application/x-protobuf"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", headers=headers) as client:
        for request in requests:
            async with client.post("/v1/traces", data=request) as response:
                response.raise_for_status()
                await response.read()
