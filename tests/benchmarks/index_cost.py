"""Measure what the index of judged answers costs a collector, beside one without it.

    python -m tests.benchmarks.index_cost [--rounds 7] [--requests 60] [--answers 3000]

*Ingest*: batches of 100 spans of 2.2 kB, ten traces each, come in by OTLP/gRPC, and a share of the answers is
judged by words, which costs no request. In each round, both collectors get as many, in turns; the ratio is
that of the processor time of whole processes, until they are at rest. *Finish* is the transaction that ends
one judged answer, 32 at once, in a store of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from ragtrace.answers.summary import summary_of
from ragtrace.model import VerdictLabel
from ragtrace.traces.attach import AttachOptions, Sample, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.store.port import Job, JudgedInput, KeptCarrier, WorkStore
from ragtrace_collector.store.sqlite import SqliteStore
from tests.benchmarks.ingest.load import Load
from tests.benchmarks.ingest.servers import ragtrace
from tests.benchmarks.judge_cost import subject
from tests.benchmarks.measured import Server, table
from tests.rag_spans import rag_trace
from tests.unit.traces.builders import a_claim, a_result, an_evaluation

SHARES: Final = (0.1, 1.0)
AT_ONCE: Final = 32
SAMPLE: Final = Sample(rule="ratio", rate=1.0, probability=1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--answers", type=int, default=3_000)
    options = parser.parse_args()
    rows = [ingest(share, options.rounds, options.requests) for share in SHARES]
    print(table([*rows, asyncio.run(finish(options.rounds, options.answers))]))


def row(what: str, without: list[float], with_index: list[float]) -> dict[str, object]:
    ratios = [after / before for before, after in zip(without, with_index, strict=True)]
    return {
        "what": what,
        "without": statistics.median(without),
        "with": statistics.median(with_index),
        "ratio, median of rounds": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


def ingest(share: float, rounds: int, requests: int) -> dict[str, object]:
    """Measure the CPU of a span, in microseconds, without the index and with it."""
    load = Load(spans_a_trace=10, at_once=8)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ragtrace("ragtrace", ("grpc",), config(share, is_indexed=is_indexed)))[0]
            for is_indexed in (False, True)
        ]
        for server in servers:
            cost(load, server, requests)  # to warm up
        taken = [
            {server: cost(load, server, requests) for server in in_turns(servers, number)}
            for number in range(rounds)
        ]
    without, with_index = ([found[server] for found in taken] for server in servers)
    return row(f"CPU µs a span, {share:.0%} judged", without, with_index)


def config(share: float, *, is_indexed: bool) -> dict[str, object]:
    return {
        "assemble": {"quiet_period": "500ms"},
        "sample": {"ratio": share},
        "judge": {"use": "lexical"},
        "index": {"enabled": is_indexed},
    }


def in_turns(servers: list[Server], number: int) -> list[Server]:
    return servers if number % 2 else servers[::-1]


def cost(load: Load, server: Server, requests: int) -> float:
    return asyncio.run(load.drive(server, load.requests(requests))).cpu_us


async def finish(rounds: int, answers: int) -> dict[str, object]:
    """Measure the CPU of ending an answer, in microseconds, without what is kept of it and with it."""
    taken: list[dict[bool, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "store.db", max_bytes=100 << 30)
        for number in range(rounds + 1):  # the first warms up
            order = (False, True) if number % 2 else (True, False)
            taken.append({is_kept: await ended(store, answers, is_kept=is_kept) for is_kept in order})
        await store.aclose()
    without, with_index = ([found[is_kept] for found in taken[1:]] for is_kept in (False, True))
    return row("CPU µs to finish an answer", without, with_index)


_numbers: Final = itertools.count(1)


async def ended(store: WorkStore, answers: int, *, is_kept: bool) -> float:
    spans = [judged(next(_numbers)) for _ in range(answers)]
    jobs = [await queued(store, span) for span in spans]
    leased = {job.trace_id: job for job in await store.take_jobs(answers, now_ns=2)}
    begun = time.process_time()
    gate = asyncio.Semaphore(AT_ONCE)

    async def end(job: Job, span: Span) -> None:
        async with gate:
            payload = encode([span])
            summary = summary_of(span) if is_kept else None
            await store.finish(
                leased[job.trace_id],
                "judged",
                outbox_items={"back end": payload},
                now_ns=3,
                carrier=span.span_id,
                judged=JudgedInput("one", 1),
                kept=KeptCarrier(summary=summary, payload=payload) if summary else None,
            )

    async with asyncio.TaskGroup() as tasks:
        for job, span in zip(jobs, spans, strict=True):
            tasks.create_task(end(job, span))
    return (time.process_time() - begun) / answers * 1e6


async def queued(store: WorkStore, span: Span) -> Job:
    assert span.parent_span_id
    ref = SpanRef(span_id=span.parent_span_id, parent_span_id=None)
    part = TraceSlice(trace_id=span.trace_id, payload=b"spans", spans=(ref,))
    await store.append([part], forward={}, now_ns=1)
    job = Job(trace_id=span.trace_id, span_id=ref.span_id, sample=SAMPLE)
    await store.decide_trace(span.trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=1)
    return job


def judged(number: int) -> Span:
    """Return the carrier of an answer with six claims, in a trace of its own."""
    spans = rag_trace(0, question=subject.QUESTION, chunks=subject.CHUNKS, answer=subject.ANSWER)
    (record,) = extract_records(Trace.of(spans[0].trace_id, spans)).records
    evaluation = an_evaluation(a_result(*(a_claim(place, VerdictLabel.SUPPORTED) for place in range(6))))
    found = carrier(evaluation, record, sample=SAMPLE, options=AttachOptions(), now_ns=3, cost_usd=0.001)
    return replace(found, trace_id=f"{number:032x}")


if __name__ == "__main__":
    main()
