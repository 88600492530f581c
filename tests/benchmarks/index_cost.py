"""Measure what the index of judged answers costs a collector, beside one without it.

    python -m tests.benchmarks.index_cost [--rounds 15] [--requests 20] [--answers 1000]

*Ingest*: batches of 100 spans of 2.2 kB, ten traces each, come in, and a share of the answers is judged by
words, which costs no request. Two collectors get the same in turns, in this process and without a network;
the ratio is that of the processor time of all threads, until the carriers are delivered. *Finish* is the
transaction that ends one judged answer, 32 at once, in a store of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ragtrace.answers.summary import summary_of
from ragtrace.model import Sample, VerdictLabel
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.store.records import Job, JudgedInput, KeptCarrier
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.benchmarks.ingest.load import SPANS, Load
from tests.benchmarks.judge_cost import subject
from tests.benchmarks.measured import table
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import rag_trace
from tests.unit.traces.builders import a_claim, a_result, an_evaluation

SHARES: Final = (0.1, 1.0)
AT_ONCE: Final = 32
QUIET_S: Final = 5.0
SAMPLE: Final = Sample(rule="ratio", rate=1.0, probability=1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--answers", type=int, default=1_000)
    options = parser.parse_args()
    for share in SHARES:
        print(table([asyncio.run(ingest(share, options.rounds, options.requests))]), flush=True)
    print(table([asyncio.run(finish(options.rounds, options.answers))]))


def row(what: str, without: list[float], with_index: list[float]) -> dict[str, object]:
    ratios = [after / before for before, after in zip(without, with_index, strict=True)]
    return {
        "what": what,
        "without": statistics.median(without),
        "with": statistics.median(with_index),
        "ratio, median of rounds": statistics.median(ratios),
        "half of the rounds": "{0:.3f} to {2:.3f}".format(*statistics.quantiles(ratios)),
        "of the best rounds": f"{min(with_index) / min(without):.3f}",
    }


async def ingest(share: float, rounds: int, requests: int) -> dict[str, object]:
    """Measure the CPU of a span, in microseconds, without the index and with it."""
    load = Load(spans_a_trace=10, at_once=1)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            stepped_collector(config(Path(folder) / "without", share, is_indexed=False)) as without,
            stepped_collector(config(Path(folder) / "with", share, is_indexed=True)) as with_index,
        ):
            taken: list[dict[int, float]] = []
            for number in range(rounds + 1):  # the first warms up
                sides = (without, with_index) if number % 2 else (with_index, without)
                batch = load.requests(requests)
                taken.append({id(side): await cost(side, batch) for side in sides})
    sides_taken = ([found[id(side)] for found in taken[1:]] for side in (without, with_index))
    return row(f"CPU µs a span, {share:.0%} judged", *sides_taken)


def config(folder: Path, share: float, *, is_indexed: bool) -> CollectorConfig:
    folder.mkdir()
    return config_of(
        folder,
        assemble={"quiet_period": f"{QUIET_S}s", "linger": "1s"},
        sample={"ratio": share},
        judge={"use": "lexical"},
        store={"path": str(folder / "store.db"), "max_bytes": "100GiB"},
        index={"enabled": is_indexed},
    )


async def cost(side: Stepped, requests: Sequence[bytes]) -> float:
    """Take spans in, judge them and deliver the carriers; forget what is past."""
    begun = time.process_time()
    async with asyncio.TaskGroup() as senders:
        for request in requests:
            senders.create_task(side.collector.pipeline.intake.accept(request, encoding="protobuf"))
    side.clock.time_ns += int(2 * QUIET_S * 1e9)
    await side.collector.pipeline.sample_stage.step()
    while jobs := await side.collector.pipeline.evaluator.take(AT_ONCE):
        async with asyncio.TaskGroup() as workers:
            for job in jobs:
                workers.create_task(side.collector.pipeline.evaluator.attempt(job))
    await side.work()
    await side.collector.pipeline._expire()
    return (time.process_time() - begun) / (len(requests) * SPANS) * 1e6


async def finish(rounds: int, answers: int) -> dict[str, object]:
    """Measure the CPU of ending an answer, in microseconds, without what is kept of it and with it."""
    taken: list[dict[bool, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = await Store.open(SqliteFile(Path(folder) / "store.db"), max_bytes=100 << 30)
        for number in range(rounds + 1):  # the first warms up
            order = (False, True) if number % 2 else (True, False)
            taken.append({is_kept: await ended(store, answers, is_kept=is_kept) for is_kept in order})
        await store.aclose()
    without, with_index = ([found[is_kept] for found in taken[1:]] for is_kept in (False, True))
    return row("CPU µs to finish an answer", without, with_index)


_numbers: Final = itertools.count(1)


async def ended(store: Store, answers: int, *, is_kept: bool) -> float:
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


async def queued(store: Store, span: Span) -> Job:
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
