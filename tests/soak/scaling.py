"""How answers a second grow with the evaluators of one PostgreSQL: ``python -m tests.soak.scaling``.

One, two and three processes judge a backlog that never empties, 64 answers at once each, with a judge that
takes half a second a request.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from ragtrace.traces.otlp import encode
from ragtrace_collector.store.postgres import PostgresServer
from tests.acceptance.collector_process import collector_process
from tests.acceptance.replies import ANSWER, REPLIES
from tests.backends.postgres_server import running_postgres
from tests.backends.process import eventually, free_ports, is_listening
from tests.rag_spans import rag_trace
from tests.soak.judge import KEY

_AT_ONCE: Final = 64
_JUDGE_S: Final = 0.5
_WARM_UP_S, _MEASURED_S = 10.0, 30.0
_BACKLOG: Final = 18_000
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def main() -> int:
    """Measure, and print the answers a second and the share of what one process makes."""
    os.environ[KEY] = "not-a-key"
    with tempfile.TemporaryDirectory() as folder, running_postgres() as database, _judge() as url:
        store = database.new_database()
        _fill(Path(folder), store, url)
        alone = 0.0
        for number in (1, 2, 3):
            rate = _rate(Path(folder) / str(number), store, url, evaluators=number)
            alone = alone or rate
            print(
                f"{number} evaluators: {rate:.1f} answers a second, {rate / number / alone:.3f} of linear",
                flush=True,
            )
    return 0


def _fill(folder: Path, store: str, judge: str) -> None:
    place = folder / "ingest"
    place.mkdir()
    with collector_process(place, _config(store, judge), options=("--role", "ingest")) as collector:
        with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
            export = channel.unary_unary(_EXPORT)
            for first in range(0, _BACKLOG, 100):
                spans = [
                    span for number in range(first, first + 100) for span in rag_trace(number, answer=ANSWER)
                ]
                export(encode(spans), timeout=60)
        eventually(lambda: _count(store, "queued") == _BACKLOG, what="the backlog")


def _rate(folder: Path, store: str, judge: str, *, evaluators: int) -> float:
    with ExitStack() as stack:
        for number in range(evaluators):
            place = folder / str(number)
            place.mkdir(parents=True)
            process = collector_process(place, _config(store, judge), options=("--role", "evaluate"))
            stack.enter_context(process)
        time.sleep(_WARM_UP_S)
        before, began_s = _count(store, "ended"), time.monotonic()
        time.sleep(_MEASURED_S)
        rate = (_count(store, "ended") - before) / (time.monotonic() - began_s)
        assert _count(store, "queued") > 0, "the backlog was judged"
    return rate


def _count(store: str, state: str) -> int:
    with PostgresServer(store).reading() as db:
        (number,) = db.execute("SELECT count(*) FROM job WHERE state = ?", (state,)).fetchone()
    return int(number)


def _config(store: str, judge: str) -> Mapping[str, Any]:
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "assemble": {"quiet_period": "200ms", "deadline": "5s", "max_open_traces": 2 * _BACKLOG},
        "judge": {
            "use": "openai:rule",
            "base_url": judge,
            "api_key_env": KEY,
            "max_concurrency": _AT_ONCE,
            "sentinel_rate": 0,
        },
        "store": store,
        "telemetry": {"listen": "127.0.0.1:0"},
        "drain_timeout": "2s",
    }


@contextmanager
def _judge() -> Iterator[str]:
    (port,) = free_ports(1)
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    process.start()
    try:
        eventually(lambda: is_listening(port), what="the judge")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.join()


def _serve(port: int) -> None:
    replies = {step: _response(reply) for step, reply in REPLIES.items()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                body = await reader.readexactly(length)
                await asyncio.sleep(_JUDGE_S)
                writer.write(replies["verify" if b'"verdicts"' in body else "extract"])
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", port, backlog=512) as server:
            await server.serve_forever()

    asyncio.run(serve())


def _response(reply: object) -> bytes:
    said = {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "rule",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": json.dumps(reply)},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
    body = json.dumps(said).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


if __name__ == "__main__":
    sys.exit(main())
