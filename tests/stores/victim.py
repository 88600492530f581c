"""A process that works on a store, says what was acknowledged, and is killed: ``victim ADAPTER FOLDER``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ragtrace.traces.attach import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.port import Job, WorkStore
from tests.stores.adapters import PLACES

SINK: Final = "back end"
SAMPLE: Final = Sample(rule="ratio", rate=1.0, probability=1.0)


def payload_of(trace_id: str) -> bytes:
    return f"spans of {trace_id}".encode()


def carrier_of(trace_id: str) -> bytes:
    return f"carrier of {trace_id}".encode()


async def follow_trace(store: WorkStore, trace_id: str, say: Callable[[str, str], None]) -> None:
    """Take a trace from its spans to its carrier; say each change that was acknowledged."""
    ref = SpanRef(span_id="s1", parent_span_id=None)
    part = TraceSlice(trace_id=trace_id, payload=payload_of(trace_id), spans=(ref,))
    await store.append([part], forward={SINK: payload_of(trace_id)}, now_ns=1)
    say("appended", trace_id)
    job = Job(trace_id=trace_id, span_id="s1", sample=SAMPLE)
    await store.decide_trace(trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=2)
    say("decided", trace_id)
    for taken in await store.take_jobs(1, now_ns=3):
        carriers = {SINK: carrier_of(taken.trace_id)}
        await store.finish(taken, "judged", outbox_items=carriers, now_ns=4, carrier="c1")
        say("judged", taken.trace_id)


async def _work(adapter: str, folder: Path) -> None:
    (kind,) = (kind for kind in PLACES if kind.name == adapter)
    store = await kind.of(folder).open()
    for first in range(0, 1 << 30, 10):
        async with asyncio.TaskGroup() as tasks:
            for number in range(first, first + 10):
                tasks.create_task(follow_trace(store, f"{number:032x}", _say))


def _say(what: str, trace_id: str) -> None:
    print(what, trace_id, flush=True)


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], Path(sys.argv[2])))
