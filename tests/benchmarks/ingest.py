"""What the collector's receivers cost: CPU a span, beside bare servers that only parse.

Run it with ``python -m tests.benchmarks.ingest``. Servers run in processes of their own and take turns, round
by round, so that the ratios hold on a noisy machine. Requests are batches of 100 spans of about 2 kB.
``kept`` is durable: a request is answered after its spans are committed. Judging is off (a quiet period of an
hour), so this is the cost of taking spans in. ``sampled out`` is the same traffic with a ratio of 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import httpx

from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import collector_process
from tests.rag_spans import rag_trace

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SPANS = 100

BARE = """
import asyncio, sys
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

async def serve_grpc():
    import grpc
    async def export(request, context):
        return service.ExportTraceServiceResponse()
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 16 << 20)])
    method = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=service.ExportTraceServiceRequest.FromString,
        response_serializer=service.ExportTraceServiceResponse.SerializeToString,
    )
    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Export": method}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()

async def serve_http():
    import socket, uvicorn
    async def app(scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        service.ExportTraceServiceRequest.FromString(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")).serve([listening])

asyncio.run({"grpc": serve_grpc, "http": serve_http}[sys.argv[1]]())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that is measured."""

    name: str
    pid: int
    protocol: str
    port: int

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    spans_per_s: float
    cpu_us: float


@contextmanager
def bare(protocol: str) -> Iterator[Server]:
    process = subprocess.Popen([sys.executable, "-c", BARE, protocol], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Server(name=f"bare {protocol}", pid=process.pid, protocol=protocol, port=port)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def collector(name: str, ratio: float) -> Iterator[list[Server]]:
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
            "telemetry": {"listen": None},
            "assemble": {"quiet_period": "1h", "deadline": "1h", "max_spans_per_trace": 1_000_000},
            "sample": {"ratio": ratio},
            "export": [{"endpoint": f"otlp-file:{folder}/out.jsonl"}],
            "store": {"path": f"{folder}/store.db", "max_bytes": "100GiB"},
            "drain_timeout": "0s",
        }
        with collector_process(Path(folder), config) as running:
            pid = running.process.pid
            yield [
                Server(name=f"{name} grpc", pid=pid, protocol="grpc", port=running.grpc_port),
                Server(name=f"{name} http", pid=pid, protocol="http", port=running.http_port),
            ]
            running.kill()  # what it kept is of no interest: no need to wait until it is settled


def batches(number: int, spans_a_trace: int) -> list[bytes]:
    """Return requests of 100 spans, of as many traces as that makes."""
    made = []
    for batch in range(number):
        spans = []
        for position in range(SPANS):
            trace, within = divmod(position, spans_a_trace)
            span = rag_trace(batch * SPANS + trace, answer="x" * 600, chunks=["y" * 300] * 4)[within % 3]
            spans.append(replace(span, span_id=f"{position + 1:016x}"))
        made.append(encode(spans))
    return made


async def drive(server: Server, requests: list[bytes], at_once: int) -> Measured:
    waiting = iter(requests)
    cpu_s, started = server.cpu_s(), time.perf_counter()
    async with asyncio.TaskGroup() as senders:
        for _ in range(at_once):
            senders.create_task(
                send_grpc(server, waiting) if server.protocol == "grpc" else send_http(server, waiting)
            )
    wall_s, spans = time.perf_counter() - started, len(requests) * SPANS
    return Measured(spans_per_s=spans / wall_s, cpu_us=(server.cpu_s() - cpu_s) / spans * 1e6)


async def send_grpc(server: Server, requests: Iterator[bytes]) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        export = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        for request in requests:
            await export(request)


async def send_http(server: Server, requests: Iterator[bytes]) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
        for request in requests:
            response = await client.post(
                "/v1/traces", content=request, headers={"content-type": "application/x-protobuf"}
            )
            response.raise_for_status()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200, help="a round and server, of 100 spans each")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--spans-a-trace", type=int, default=10)
    options = parser.parse_args()
    requests = batches(options.requests, options.spans_a_trace)
    print(f"{sum(map(len, requests)) / len(requests) / SPANS:.0f} bytes a span")
    with ExitStack() as stack:
        servers = [stack.enter_context(bare("grpc")), stack.enter_context(bare("http"))]
        servers += stack.enter_context(collector("kept", 1.0))
        servers += stack.enter_context(collector("sampled out", 0.0))
        results: dict[str, list[Measured]] = {server.name: [] for server in servers}
        for number in range(options.rounds + 1):
            for server in servers if number % 2 else reversed(servers):
                measured = asyncio.run(drive(server, requests, options.at_once))
                if number:  # the first round warms up
                    results[server.name].append(measured)
        for server in servers:
            print(line(server, results))


def line(server: Server, results: dict[str, list[Measured]]) -> str:
    mine, bares = results[server.name], results[f"bare {server.protocol}"]
    ratio = statistics.median(a.cpu_us / b.cpu_us for a, b in zip(mine, bares, strict=True))
    rate = statistics.median(each.spans_per_s for each in mine)
    cpu_us = statistics.median(each.cpu_us for each in mine)
    row = {"spans/s": round(rate), "CPU µs a span": round(cpu_us, 1), "of bare": round(ratio, 2)}
    return f"{server.name:16} {json.dumps(row, ensure_ascii=False)}"


if __name__ == "__main__":
    main()
