"""What every work store promises of the state of sampling: a restart decides the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.sampling import (
    LeftOutAnswer,
    LowAnswer,
    SamplingChanges,
    WindowRow,
)
from ragtrace_collector.store.records import Job, Outcome
from ragtrace_collector.store.store import Store
from tests.stores.place import Place

SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)
FOLLOW_UP = Sample(rule="neighbour", rate=1.0, probability=None)
LOW = LowAnswer(trace_id="t9", span_id="s9", keys=("session", "chunk"), remaining=3, until_ns=100)
ROW = WindowRow("minute", 60, "acme", 5, 2.5, 1.0, 2)


def part(trace_id: str) -> TraceSlice:
    return TraceSlice(
        trace_id=trace_id, payload=b"spans", spans=(SpanRef(span_id="s1", parent_span_id=None),)
    )


async def leave_out(
    store: Store, trace_id: str, keys: Sequence[str], *, seen_ns: int, outcome: str = "sampled_out"
) -> None:
    await store.append([part(trace_id)], forward={}, now_ns=seen_ns)
    left_out = Outcome(span_id="s1", outcome=outcome, sample=SAMPLE, tenant="acme")
    await store.decide_trace(trace_id, jobs=[], outcomes=[left_out], keep_spans=True, now_ns=seen_ns)
    answer = LeftOutAnswer(trace_id, "s1", tuple(keys), seen_ns)
    await store.sampling.save(SamplingChanges(left_out_answers=(answer,)))


async def test_counts_are_there_after_a_restart_and_the_newest_row_counts(place: Place) -> None:
    first = await place.open()
    await first.sampling.save(SamplingChanges(windows=(ROW, ROW._replace(tenant=""))))
    await first.sampling.save(SamplingChanges(windows=(ROW._replace(seen=6),)))
    await first.aclose()
    second = await place.open()
    windows, low = await second.sampling.load(now_ns=1)
    await second.aclose()
    assert (set(windows), low) == ({ROW._replace(seen=6), ROW._replace(tenant="")}, ())


async def test_a_low_answer_is_active_until_its_time_and_counts_down(place: Place) -> None:
    first = await place.open()
    await first.sampling.select_related(LOW, [], now_ns=1)
    await first.sampling.select_related(replace(LOW, remaining=9), [], now_ns=1)
    await first.sampling.select_related(replace(LOW, span_id="s8", until_ns=50), [], now_ns=1)
    unknown = replace(LOW, span_id="s7")
    await first.sampling.save(SamplingChanges(low=(replace(LOW, remaining=2), unknown)))
    await first.aclose()
    second = await place.open()
    early, late, after = [(await second.sampling.load(now_ns=now_ns))[1] for now_ns in (49, 50, 100)]
    await second.aclose()
    assert early == (replace(LOW, span_id="s8", until_ns=50), replace(LOW, remaining=2))
    assert (late, after) == ((replace(LOW, remaining=2),), ())


async def test_a_related_answer_is_queued_once_and_counted_anew(store: Store) -> None:
    await leave_out(store, "t1", ["session"], seen_ns=1)
    job = Job(trace_id="t1", span_id="s1", sample=FOLLOW_UP)
    assert [await store.sampling.select_related(LOW, [job], now_ns=now_ns) for now_ns in (5, 6)] == [1, 0]
    (taken,) = await store.take_jobs(9, now_ns=7)
    assert (taken.sample, taken.seen_ns, taken.tenant) == (FOLLOW_UP, 5, "acme")
    assert await store.sampling.candidates(["session"], limit=9) == ()
    ledger = await store.ledger()
    assert (ledger.adds_up, ledger.seen, ledger.pending) == (True, 1, 1)
