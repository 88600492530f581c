"""What taking in a span costs a server in processor time.

Each server is compared with one that parses spans and forgets them, and the collector with an OpenTelemetry
Collector that does the same: sample, keep, or forward. Every server is a process of its own. They take turns,
round by round in changing order. Requests are batches of 100 spans of about 2 kB, of ten traces that were
never sent before; the processor time is read when the server has come to rest. *kept* is durable: a request
is answered after its spans are committed. *forwards* hands on to a bare receiver what came in; otelcol's
forwards from memory, and *stores and forwards* answers when its queue is on disk, as ours does. But for
*judged*, by the heuristic that needs no model, nothing is judged.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Final

import aiohttp
import grpc

from ragtrace.traces.otlp import encode
from tests.benchmarks.ingest.servers import (
    bare,
    binary_of,
    jaeger,
    otelcol,
    otelcol_modes,
    otelcol_version,
    ragtrace,
    ragtrace_modes,
)
from tests.benchmarks.judge_cost import subject
from tests.benchmarks.measured import Server
from tests.benchmarks.recording import Measurement, versions_of
from tests.rag_spans import rag_trace, trace_id_of

ROUNDS: Final = 5
REQUESTS: Final = 150
AT_ONCE: Final = 8
SPANS: Final = 100
"""In a request."""
SPANS_A_TRACE: Final = 10
EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TAIL: Final = "otelcol, tail_sampling 10 %"
RIVALS: Final = {
    "ragtrace, 0 % kept": (TAIL,),
    "ragtrace, 10 % kept": (TAIL, f"{TAIL}, stores and forwards"),
    "ragtrace, 100 % kept": ("Jaeger",),
    "ragtrace, 0 % kept, forwards": ("otelcol, forwards", "otelcol, stores and forwards"),
}
PACKAGES: Final = {"grpc": "grpcio", "http": "uvicorn"}


def measure() -> list[Measurement]:
    """Measure the collector, and beside it an OpenTelemetry Collector and Jaeger, if they were built."""
    with ExitStack() as stack:
        servers = _started(stack)
        found = _driven(servers)
    measured = {(server.name, server.protocol): found[n] for n, server in enumerate(servers)}
    beside_bare = [
        _ratio(measured, name, "bare", protocol, _versions_of(name))
        for name, protocol in measured
        if name != "bare"
    ]
    beside_rivals = [
        _ratio(measured, name, rival, protocol, _versions_of(rival))
        for name, protocol in measured
        for rival in RIVALS.get(name, ())
        if (rival, protocol) in measured
    ]
    return beside_bare + beside_rivals


def _started(stack: ExitStack) -> list[Server]:
    bares = [stack.enter_context(bare(protocol)) for protocol in ("grpc", "http")]
    sink = stack.enter_context(bare("grpc"))
    servers = list(bares)
    for name, mode in ragtrace_modes(f"grpc://127.0.0.1:{sink.port}").items():
        servers += stack.enter_context(ragtrace(name, *mode))
    if (binary := binary_of("otelcol")).exists():
        for name, otelcol_mode in otelcol_modes(f"127.0.0.1:{sink.port}").items():
            servers += stack.enter_context(otelcol(binary, name, *otelcol_mode))
    if (binary := binary_of("jaeger")).exists():
        servers += stack.enter_context(jaeger(binary))
    return servers


def _driven(servers: Sequence[Server]) -> dict[int, list[float]]:
    """Send every server its share, in turns; return what each made of it, by its place, round by round."""
    found: dict[int, list[float]] = defaultdict(list)
    for number in range(ROUNDS + 1):
        # the first round warms up, by a tenth of the load
        most = REQUESTS if number else REQUESTS // 10
        for position in random.sample(range(len(servers)), len(servers)):
            measured = asyncio.run(drive(servers[position], new_requests(most)))
            if number:
                found[position].append(measured)
    return found


def _versions_of(server: str) -> Mapping[str, str]:
    return {"otelcol": otelcol_version()} if server.startswith("otelcol") else {}


def _ratio(
    measured: Mapping[tuple[str, str], Sequence[float]],
    name: str,
    other: str,
    protocol: str,
    versions: Mapping[str, str],
) -> Measurement:
    pairs = zip(measured[name, protocol], measured[other, protocol], strict=True)
    return Measurement(
        what=f"{name}, {protocol}, CPU a span",
        alternative="a bare receiver in Python" if other == "bare" else other,
        ratios=tuple(one / another for one, another in pairs),
        versions={**versions_of([PACKAGES[protocol]]), **versions},
    )


def new_requests(number: int) -> list[bytes]:
    """Make requests as an exporter does, none of which was sent before."""
    template, traces = _template(), SPANS // SPANS_A_TRACE
    return [_renamed(template, traces) for _ in range(number)]


def _renamed(request: bytes, traces: int) -> bytes:
    for trace in range(traces):
        request = request.replace(bytes.fromhex(trace_id_of(trace)), secrets.token_bytes(16))
    return request


@cache
def _template() -> bytes:
    prose = " ".join(subject.CHUNKS)

    def text(number: int, length: int) -> str:
        """Return English prose: what searches, checks and compresses texts takes its time with real ones."""
        start = number * 97 % len(prose)
        return (prose * (length // len(prose) + 2))[start : start + length]

    spans = []
    for position in range(SPANS):
        trace, within = divmod(position, SPANS_A_TRACE)
        chunks = [text(5 * position + number, 600) for number in range(5)]
        span = rag_trace(trace, answer=text(position, 1_200), chunks=chunks)[within % 3]
        parent = None if within == 0 else f"{trace * SPANS_A_TRACE + 1:016x}"
        spans.append(replace(span, span_id=f"{position + 1:016x}", parent_span_id=parent))
    return encode(spans)


async def drive(server: Server, requests: Sequence[bytes]) -> float:
    """Send requests, several at once; return the CPU µs a span until the server has come to rest."""
    waiting, before = iter(requests), server.cpu_s()
    send = _send_grpc if server.protocol == "grpc" else _send_http
    async with asyncio.TaskGroup() as senders:
        for _ in range(AT_ONCE):
            senders.create_task(send(server, waiting))
    cpu_s = await asyncio.to_thread(server.at_rest)
    return (cpu_s - before) / (len(requests) * SPANS) * 1e6


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
