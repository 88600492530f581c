"""The collector under a load of answers, with a stub as its judge and a receiver that notes when scores come.

The stub, in another process, answers as a sane model would, at once or after a latency. Answers of
`judge_cost.subject` (five chunks, six claims) come in by OTLP/gRPC and are judged for faithfulness.
*CPU an evaluation* is the processor time of the whole collector: OTLP in, store, extraction, requests to the
judge, checks of its replies, carrier, delivery.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import secrets
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import httpx
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
from tests.benchmarks.measured import Server
from tests.benchmarks.recording import Measurement, versions_of
from tests.rag_spans import rag_trace

EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LATENCY_S: Final = 0.5
QUIET_S: Final = 1.0
WARM_UP: Final = 20
AT_ONCE: Final = 64
SCORE: Final = f"{semconv.SCORE_PREFIX}faithfulness"


def at_limit(stub: str, scores: Scores, latency_s: float, answers: int) -> tuple[float, float]:
    """Measure the collector at its limit: evaluations a second, and CPU ms each."""
    configure(stub, latency_s=latency_s)
    with collector(stub, scores) as server:
        asyncio.run(send_all(server, new_answers(WARM_UP), scores))
        before = server.at_rest()
        per_s = asyncio.run(send_all(server, new_answers(answers), scores))
        return per_s, (server.at_rest() - before) / answers * 1e3


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
def collector(stub: str, scores: Scores, store: Path | None = None) -> Iterator[Server]:
    """Run the collector with the stub as its judge and its store in this file."""
    with tempfile.TemporaryDirectory() as folder, environment(OPENAI_API_KEY="none"):
        config: dict[str, Any] = {
            "receive": {"grpc": "127.0.0.1:0", "http": None},
            "assemble": {"quiet_period": f"{QUIET_S}s"},
            "judge": {"use": "openai:stub", "base_url": f"{stub}/v1", "max_concurrency": AT_ONCE},
            "export": [{"endpoint": scores.endpoint}],
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
    await library(stub, 1, 1)
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


async def library(stub: str, answers: int, at_once: int) -> float:
    """Judge the record by the library alone; return the CPU ms of an evaluation."""
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


async def floor(stub: str, bodies: Sequence[bytes], answers: int) -> float:
    """Post the requests of an evaluation and read the replies; return the CPU ms of all."""
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one() -> None:
            for body in bodies:
                headers = {"content-type": "application/json"}
                url = f"{stub}/v1/chat/completions"
                async with session.post(url, data=body, headers=headers) as response:
                    reply: Any = json.loads(await response.read())
                    assert reply["choices"]

        return await measured(one, answers, AT_ONCE)


async def measured(one: Callable[[], Awaitable[None]], number: int, at_once: int) -> float:
    await one()  # what is done once is not counted
    left = iter(range(number))

    async def work() -> None:
        for _ in left:
            await one()

    cpu_s = time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, number)):
            tasks.create_task(work())
    return (time.process_time() - cpu_s) / number * 1e3


PIPELINE_ROUNDS, PIPELINE_ANSWERS = 5, 150
VISIBLE_ROUNDS, VISIBLE_ANSWERS = 3, 200
TRAFFIC_ROUNDS: Final = 3
FIRST: Final = 300
"""Answers after which caches are full, and the growth is that of traffic."""
FURTHER: Final = 1_000
AT_A_TIME: Final = 100
LOAD: Final = 0.5
CALLS: Final = 2


def pipeline() -> list[Measurement]:
    """Measure an evaluation of the whole collector, and of the library alone, beside its requests alone."""
    with ExitStack() as stack:
        stub, scores = stack.enter_context(running_stub()), stack.enter_context(Scores.receiving())
        bodies = asyncio.run(requests_of_one_evaluation(stub))
        whole, alone = [], []
        for _ in range(PIPELINE_ROUNDS):
            _, whole_ms = at_limit(stub, scores, 0.0, PIPELINE_ANSWERS)
            configure(stub, latency_s=0.0)
            library_ms = asyncio.run(library(stub, PIPELINE_ANSWERS, AT_ONCE))
            floor_ms = asyncio.run(floor(stub, bodies, PIPELINE_ANSWERS))
            whole.append(whole_ms / floor_ms)
            alone.append(library_ms / floor_ms)
    return [
        Measurement(
            what=f"{what}, CPU an evaluation",
            alternative=f"its {len(bodies)} requests by aiohttp",
            ratios=tuple(ratios),
            versions=versions_of(["aiohttp"]),
        )
        for what, ratios in (("the collector", whole), ("evaluate() alone", alone))
    ]


def visible() -> list[Measurement]:
    """Measure how soon a score is on the trace: from the acknowledged spans to the score at the back end.

    The collector first judges as fast as it can; then answers come at half that rate. The judge's two
    latencies are the alternative: nobody can be sooner. The quiet period, in which a trace may get further
    spans, is part of the time.
    """
    p50, p95 = [], []
    with ExitStack() as stack:
        stub, scores = stack.enter_context(running_stub()), stack.enter_context(Scores.receiving())
        for _ in range(VISIBLE_ROUNDS):
            most_a_second, _ = at_limit(stub, scores, LATENCY_S, VISIBLE_ANSWERS)
            with collector(stub, scores) as server:
                answers = new_answers(VISIBLE_ANSWERS)
                took_s = asyncio.run(send_paced(server, answers, scores, LOAD * most_a_second))
            cuts = statistics.quantiles(took_s, n=100)
            p50.append(cuts[49] / (CALLS * LATENCY_S))
            p95.append(cuts[94] / (CALLS * LATENCY_S))
    return [
        Measurement(
            what=f"answer to score at 50 % load, {name}",
            alternative=f"the judge's {CALLS} calls of {LATENCY_S:g} s (quiet period {QUIET_S:g} s)",
            ratios=tuple(ratios),
        )
        for name, ratios in (("p50", p50), ("p95", p95))
    ]


def traffic() -> list[Measurement]:
    """Measure what a thousand judged answers leave behind: bytes in the store, and memory that grows."""
    disk, memory = [], []
    with ExitStack() as stack:
        stub, scores = stack.enter_context(running_stub()), stack.enter_context(Scores.receiving())
        configure(stub, latency_s=0.0)
        for _ in range(TRAFFIC_ROUNDS):
            stored, grown = _left_behind(stub, scores)
            disk.append(stored)
            memory.append(grown)
    return [
        Measurement(
            what="bytes in the store, an answer",
            alternative="bytes received, an answer",
            ratios=tuple(disk),
            versions={"sqlite": sqlite3.sqlite_version},
        ),
        Measurement(
            what=f"memory after {FURTHER:,} further answers",
            alternative=f"memory after the first {FIRST}",
            ratios=tuple(memory),
            versions=versions_of(["grpcio"]),
        ),
    ]


def _left_behind(stub: str, scores: Scores) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        with collector(stub, scores, store) as server:

            def send(requests: Sequence[bytes]) -> None:
                """Send some at a time, so that what waits is not measured."""
                for start in range(0, len(requests), AT_A_TIME):
                    asyncio.run(send_all(server, requests[start : start + AT_A_TIME], scores))
                server.at_rest()

            send(new_answers(FIRST))
            bytes_before, memory_before = bytes_in(store), server.rss_mb()
            send(requests := new_answers(FURTHER))
            stored = (bytes_in(store) - bytes_before) / sum(map(len, requests))
            return stored, server.rss_mb() / memory_before


def bytes_in(store: Path) -> int:
    address = f"{store.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as db:
        [(pages,)], [(free,)], [(size,)] = (
            db.execute(f"PRAGMA {name}").fetchall() for name in ("page_count", "freelist_count", "page_size")
        )
    used: int = (pages - free) * size
    return used
