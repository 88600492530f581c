"""A collector in the test's own loop, and OTLP senders that speak to it as strangers would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace.ports import Clock
from ragtrace.traces.otlp import decode_json, encode
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig, parse_config
from ragtrace_collector.service.collector import Collector, open_collector
from tests.patience import PATIENCE_S

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = {"content-type": "application/x-protobuf"}


def config_of(folder: Path, **changes: Any) -> CollectorConfig:
    """Return a configuration that is quick, listens on free ports and writes carriers to ``out.jsonl``."""
    settings: dict[str, Any] = {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "50ms", "deadline": "2s"},
        "sample": {},
        "judge": {"use": "scripted"},
        "evaluate": {"retry_delays": [], "probe_delays": ["24h"], "deadline": "12h"},
        "export": [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}],
        "store": {"path": str(folder / "store.db")},
        "telemetry": {"listen": "127.0.0.1:0"},
        "drain_timeout": f"{PATIENCE_S}s",
    }
    for key, value in changes.items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, Mapping) else value
    return parse_config(json.dumps(settings), where="test", environ={})


@asynccontextmanager
async def running_collector(
    config: CollectorConfig, *, clock: Clock | None = None
) -> AsyncIterator[Collector]:
    """Serve until the block ends, then shut down in order."""
    ready, stop = asyncio.Event(), asyncio.Event()
    async with open_collector(config, clock=clock) as collector:
        serving = asyncio.create_task(collector.serve(stop, on_ready=lambda _: ready.set()))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if serving.done():
            serving.result()
        try:
            yield collector
        finally:
            stop.set()
            await serving


async def post(collector: Collector, body: bytes, headers: Mapping[str, str] = PROTOBUF) -> httpx.Response:
    """POST to the OTLP/HTTP receiver."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{collector.http_port}", timeout=PATIENCE_S
    ) as client:
        return await client.post("/v1/traces", content=body, headers=dict(headers))


async def half_a_request(port: int | None, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """POST a body of which so many bytes come, and then no more: one is missing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
    writer.write(f"{head}content-length: {size + 1}\r\n\r\n".encode() + bytes(size))
    await writer.drain()
    return reader, writer


async def send_grpc(collector: Collector, body: bytes, **options: Any) -> ExportTraceServiceResponse:
    """Send bytes to the OTLP/gRPC receiver, without looking at them."""
    limits = [("grpc.max_send_message_length", 1 << 30)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{collector.grpc_port}", options=limits) as channel:
        call = channel.unary_unary(_EXPORT, response_deserializer=ExportTraceServiceResponse.FromString)
        response: ExportTraceServiceResponse = await call(body, timeout=PATIENCE_S, **options)
        return response


async def until(condition: Any, *, deadline_s: float = PATIENCE_S) -> Any:
    """Return the first true result; for what another task or thread brings about."""
    async with asyncio.timeout(deadline_s):
        while not (result := condition()):  # noqa: ASYNC110 -- what is waited for is another thread's or task's
            await asyncio.sleep(0.02)
        return result


def carriers_in(file: Path) -> Sequence[Span]:
    """Return the carriers that a file sink wrote."""
    if not file.exists():
        return ()
    *lines, _under_way = file.read_text("utf-8").split("\n")
    return tuple(span for line in lines for span in decode_json(line))


def request_of(*spans: Span) -> bytes:
    """Return an export request."""
    return encode(spans)
