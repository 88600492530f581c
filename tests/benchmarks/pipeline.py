"""Measure the collector as a whole: evaluations a second, what one costs, and how soon a score is there.

    python -m tests.benchmarks.pipeline [--answers 300] [--at-once 64] [--seconds 15]

A stub in another process plays the judge: it answers as a sane model would, at once or after a latency.
Answers of the size that `judge_cost` measures (five chunks, six claims) come in by OTLP/gRPC, are judged for
faithfulness, and their scores go out to a receiver that notes when they came.

*CPU an evaluation* is the processor time of the whole collector: OTLP in, store, extraction, requests to the
judge, checks of its replies, carrier, delivery. Beside it stand the library alone (`evaluate()` on a record)
and the floors: the same requests, posted and read by an HTTP client and nothing more. *Answer to score* is
the time from the acknowledgement of an answer's spans to its scores at the receiver, at five answers a
second; the quiet period (1 s) and the judge's latency (twice half a second) are part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import httpx
from openai import AsyncOpenAI
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from ragtrace import evaluate, semconv
from ragtrace.judge import open_judge
from ragtrace.metrics import metric_named
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span, Trace
from tests.acceptance.collector_process import collector_process
from tests.backends.process import eventually
from tests.benchmarks.judge_cost import subject
from tests.benchmarks.measured import Server, table
from tests.rag_spans import rag_trace

EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LATENCY_S: Final = 0.5
QUIET_S: Final = 1.0
A_SECOND: Final = 5
WARM_UP: Final = 20
SCORE: Final = f"{semconv.SCORE_PREFIX}faithfulness"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=15)
    options = parser.parse_args()
    with ExitStack() as stack:
        stub = stack.enter_context(running_stub())
        scores = stack.enter_context(Scores.receiving())
        print(table(costs(stub, scores, options.answers, options.at_once)), end="\n\n")
        modes = [paced(stub, scores, mode, options.at_once, options.seconds) for mode in ("append", "hold")]
        print(table(modes))


def costs(stub: str, scores: Scores, answers: int, at_once: int) -> list[dict[str, object]]:
    """Measure the collector at its limit, the library and the floor."""
    rows = []
    for latency_s in (0.0, LATENCY_S):
        found = at_limit(stub, scores, latency_s, answers, at_once)
        rows.append(row(f"collector, judge takes {latency_s:g} s", *found))
    configure(stub, latency_s=0.0)
    bodies = asyncio.run(requests_of_one_evaluation(stub))
    others = {
        "evaluate() alone": library,
        f"floor: {len(bodies)} requests by aiohttp": floor,
        f"floor: {len(bodies)} requests by openai over httpx": sdk_floor,
    }
    for name, cost in others.items():
        rows.append(row(name, *asyncio.run(cost(stub, bodies, answers, at_once)), None))
    return rows


def at_limit(
    stub: str, scores: Scores, latency_s: float, answers: int, at_once: int
) -> tuple[float, float, float]:
    """Measure the collector at its limit: evaluations a second, CPU ms each, and its memory in MB."""
    configure(stub, latency_s=latency_s)
    with collector(stub, scores, "append", at_once) as server:
        asyncio.run(send_all(server, new_answers(WARM_UP), scores))
        before = server.at_rest().cpu_s
        per_s = asyncio.run(send_all(server, new_answers(answers), scores))
        cpu_ms = (server.at_rest().cpu_s - before) / answers * 1e3
        return per_s, cpu_ms, server.rss_mb()


def row(name: str, per_s: float, cpu_ms: float, rss_mb: float | None) -> dict[str, object]:
    return {
        "what": name,
        "evaluations/s": per_s,
        "CPU ms an evaluation": cpu_ms,
        "RSS MB": "" if rss_mb is None else rss_mb,
    }


def paced(stub: str, scores: Scores, mode: str, at_once: int, seconds: int) -> dict[str, object]:
    """Measure how soon the score of an answer is there, at an easy pace."""
    configure(stub, latency_s=LATENCY_S)
    with collector(stub, scores, mode, at_once) as server:
        taken_s = asyncio.run(send_paced(server, new_answers(A_SECOND * seconds), scores, A_SECOND))
    cuts = statistics.quantiles(taken_s, n=100)
    return {
        "mode": mode,
        "answers": len(taken_s),
        "to score, p50 s": cuts[49],
        "p95 s": cuts[94],
        "p99 s": cuts[98],
    }


class Scores(TraceServiceServicer):
    """An OTLP receiver that notes when the scores of a trace came, on the clock of ``time.perf_counter``."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.came: dict[bytes, float] = {}

    def Export(  # noqa: N802 -- the name in the proto file
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        now = time.perf_counter()
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    if any(attribute.key == SCORE for attribute in span.attributes):
                        self.came.setdefault(span.trace_id, now)
        return ExportTraceServiceResponse()

    def wait_for(self, trace_ids: Sequence[bytes]) -> list[float]:
        """Return when the scores of these traces came, once all are there. Blocks."""
        eventually(
            lambda: all(each in self.came for each in trace_ids),
            what=f"scores of {len(trace_ids)} answers",
            deadline_s=150,
        )
        return [self.came[each] for each in trace_ids]

    @classmethod
    @contextmanager
    def receiving(cls) -> Iterator[Scores]:
        """Receive on a free port until the block ends."""
        scores, server = cls(), grpc.server(ThreadPoolExecutor(max_workers=2))
        add_TraceServiceServicer_to_server(scores, server)  # type: ignore[no-untyped-call]
        scores.endpoint = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield scores
        finally:
            server.stop(grace=None).wait()


@contextmanager
def running_stub() -> Iterator[str]:
    """Run the stub judge; yield its address."""
    command = [sys.executable, "-m", "tests.benchmarks.judge_cost.stub"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def configure(stub: str, *, latency_s: float, keep: bool = False) -> list[dict[str, str]]:
    """Tell the stub how long to take; return the requests that it kept."""
    taken: list[dict[str, str]] = httpx.post(
        f"{stub}/taken", json={"keep": keep, "latency_s": latency_s}
    ).json()
    return taken


@contextmanager
def collector(
    stub: str,
    scores: Scores,
    mode: str,
    at_once: int,
    store: Path | None = None,
) -> Iterator[Server]:
    """Run the collector with the stub as its judge and its store in this file."""
    with tempfile.TemporaryDirectory() as folder, environment(OPENAI_API_KEY="none"):
        config: dict[str, Any] = {
            "receive": {"grpc": "127.0.0.1:0", "http": None},
            "assemble": {"quiet_period": f"{QUIET_S}s"},
            "judge": {"use": "openai:stub", "base_url": f"{stub}/v1", "max_concurrency": at_once},
            "attach": {"mode": mode},
            "export": [{"endpoint": scores.endpoint, "forward": mode == "hold"}],
            "store": {"path": str(store or Path(folder) / "store.db")},
            "telemetry": {"listen": None},
            "drain_timeout": "0s",
        }
        with collector_process(Path(folder), config) as process:
            yield Server(name="collector", pid=process.process.pid, protocol="grpc", port=process.grpc_port)
            process.kill()


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def new_answers(number: int) -> list[bytes]:
    """Return requests of one RAG trace each, none of which was sent before."""
    template = encode(answer_spans())
    old = bytes.fromhex(answer_spans()[0].trace_id)
    return [template.replace(old, secrets.token_bytes(16)) for _ in range(number)]


def answer_spans() -> tuple[Span, ...]:
    return rag_trace(7, question=subject.QUESTION, chunks=subject.CHUNKS, answer=subject.ANSWER)


def trace_id_in(request: bytes) -> bytes:
    parsed = ExportTraceServiceRequest.FromString(request)
    return parsed.resource_spans[0].scope_spans[0].spans[0].trace_id


async def send_all(server: Server, requests: Sequence[bytes], scores: Scores) -> float:
    """Send answers as fast as they are taken; return how many a second were judged.

    From the first delivery to the last: those of the first were judged before.
    """
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        export = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        for request in requests:
            await export(request)
    came = await asyncio.to_thread(scores.wait_for, [trace_id_in(each) for each in requests])
    first, last = min(came), max(came)
    return sum(each > first for each in came) / (last - first) if last > first else math.inf


async def send_paced(
    server: Server, requests: Sequence[bytes], scores: Scores, a_second: float
) -> list[float]:
    """Send answers at an even pace; return how long each took from its acknowledgement to its score."""
    acknowledged = []
    started = time.perf_counter()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        export = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        for number, request in enumerate(requests):
            await asyncio.sleep(started + number / a_second - time.perf_counter())
            await export(request)
            acknowledged.append(time.perf_counter())
    came = await asyncio.to_thread(scores.wait_for, [trace_id_in(each) for each in requests])
    return [later - earlier for earlier, later in zip(acknowledged, came, strict=True)]


async def requests_of_one_evaluation(stub: str) -> list[bytes]:
    """Return the bodies that one evaluation posts, as far as they matter for their size."""
    configure(stub, latency_s=0.0, keep=True)
    await library(stub, [], 1, 1)
    taken = configure(stub, latency_s=0.0)
    return [
        json.dumps(
            {
                "model": "stub",
                "messages": [{"role": "user", "content": each["prompt"]}],
                "response_format": {"type": "json_schema", "json_schema": {"name": each["step"]}},
            }
        ).encode()
        for each in taken[: len(taken) // 2]  # the one that warmed up asked the same
    ]


async def library(stub: str, _: Sequence[bytes], answers: int, at_once: int) -> tuple[float, float]:
    """Judge the record by the library alone: evaluations a second, CPU ms each."""
    environ = {"OPENAI_API_KEY": "none"}
    judge = open_judge("openai:stub", base_url=f"{stub}/v1", environ=environ, max_concurrency=at_once)
    spans = answer_spans()
    (record,) = extract_records(Trace.of(spans[0].trace_id, spans)).records
    metrics = [metric_named("faithfulness")]
    numbers = itertools.count()

    async def one() -> None:
        fresh = replace(record, id=str(next(numbers)))
        assert (await evaluate(fresh, metrics=metrics, judge=judge)).results[0].score is not None

    try:
        return await measured(one, answers, at_once)
    finally:
        await judge.aclose()


async def floor(stub: str, bodies: Sequence[bytes], answers: int, at_once: int) -> tuple[float, float]:
    """Post the requests of an evaluation and read the replies: evaluations a second, CPU ms each."""
    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one() -> None:
            for body in bodies:
                headers = {"content-type": "application/json"}
                url = f"{stub}/v1/chat/completions"
                async with session.post(url, data=body, headers=headers) as response:
                    reply: Any = json.loads(await response.read())
                    assert reply["choices"]

        return await measured(one, answers, at_once)


async def sdk_floor(stub: str, bodies: Sequence[bytes], answers: int, at_once: int) -> tuple[float, float]:
    """Do the same with the SDK that most judges use."""
    parameters = [json.loads(body) for body in bodies]
    async with AsyncOpenAI(api_key="none", base_url=f"{stub}/v1") as client:

        async def one() -> None:
            for each in parameters:
                assert (await client.chat.completions.create(**each)).choices

        return await measured(one, answers, at_once)


async def measured(one: Callable[[], Awaitable[None]], number: int, at_once: int) -> tuple[float, float]:
    await one()  # what is done once is not counted
    left = iter(range(number))

    async def work() -> None:
        for _ in left:
            await one()

    cpu_s, started = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, number)):
            tasks.create_task(work())
    return number / (time.perf_counter() - started), (time.process_time() - cpu_s) / number * 1e3


if __name__ == "__main__":
    main()
