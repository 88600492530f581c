"""What PostgreSQL costs a collector in processor time, beside SQLite; the server is not counted."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.records import Job, JudgedInput
from ragtrace_collector.store.store import Store
from tests.backends.postgres_server import running_postgres
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording import Measurement, versions_of
from tests.stores.place import Place, PostgresPlace
from tests.stores.victim import CARRIER, SAMPLE, SINK, SPAN, carrier_of, kept_of

ROUNDS: Final = 5
ANSWERS: Final = 1_024
SPANS: Final = bytes(2_000)
MOST_BYTES: Final = 8 << 30


def measure(_: Peers) -> list[Measurement]:
    """Measure both in turn."""
    with tempfile.TemporaryDirectory() as folder, running_postgres() as server:
        file, database = Place(Path(folder) / "store.db"), PostgresPlace(server, server.new_database())
        ratios = asyncio.run(measured(file, database))
    return [
        Measurement(
            what=f"{what}, CPU of a collector on PostgreSQL",
            alternative="the same on SQLite",
            ratios=tuple(found),
            versions=versions_of(["psycopg"]),
        )
        for what, found in ratios.items()
    ]


async def measured(file: Place, database: PostgresPlace) -> dict[str, list[float]]:
    """Return by what is done how often a database takes the processor time of a file, a ratio a round."""
    stores = [await place.open(max_bytes=MOST_BYTES) for place in (file, database)]
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(ROUNDS + 1):
        first = number * ANSWERS
        ids = [f"{each:032x}" for each in range(first, first + ANSWERS)]
        on_file, on_database = [await _cpu_us(store, ids) for store in stores]
        if number:  # not the first round, in which everything is new
            for what, cpu_us in on_file.items():
                ratios[what].append(on_database[what] / cpu_us)
    for store in stores:
        await store.aclose()
    return ratios


async def _cpu_us(store: Store, ids: Sequence[str]) -> dict[str, float]:
    """Return what a trace takes from its spans to its verdict, in microseconds."""
    ref = SpanRef(span_id=SPAN, parent_span_id=None)

    async def append(trace_id: str) -> None:
        part = TraceSlice(trace_id=trace_id, payload=SPANS, spans=(ref,))
        await store.append([part], forward={}, now_ns=1)

    async def decide(trace_id: str) -> None:
        job = Job(trace_id=trace_id, span_id=SPAN, sample=SAMPLE, record_sha256="one", revisions_left=3)
        await store.decide_trace(trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=2)

    async def take_and_finish(_: str) -> None:
        (job,) = await store.take_jobs(1, now_ns=3)
        await store.finish(
            job,
            "judged",
            outbox_items={SINK: carrier_of(job.trace_id)},
            now_ns=4,
            carrier=CARRIER,
            judged=JudgedInput(record_sha256="one", slices=1),
            kept=kept_of(job.trace_id),
        )

    return {
        "append of spans": await _spent_us(append, ids, at_once=256),
        "decision about an answer": await _spent_us(decide, ids, at_once=64),
        "lease and end of an answer": await _spent_us(take_and_finish, ids, at_once=64),
    }


async def _spent_us(
    step: Callable[[str], Coroutine[Any, Any, None]], ids: Sequence[str], *, at_once: int
) -> float:
    begun_ns = time.process_time_ns()
    for start in range(0, len(ids), at_once):
        await asyncio.gather(*map(step, ids[start : start + at_once]))
    return (time.process_time_ns() - begun_ns) / 1e3 / len(ids)
