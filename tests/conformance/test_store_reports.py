"""What every work store promises of quarantine, deliveries, its ledger and its reports."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.ledger import Delivery
from ragtrace_collector.store.records import (
    HoldMode,
    Job,
    QuarantineReason,
    QuarantineRecord,
)
from ragtrace_collector.store.store import Store
from tests.backends.postgres_server import Postgres
from tests.stores.place import Place, PostgresPlace

SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)


def part(trace_id: str, payload: bytes = b"spans") -> TraceSlice:
    ref = SpanRef(span_id="s1", parent_span_id=None)
    return TraceSlice(trace_id=trace_id, payload=payload, spans=(ref,))


def job_of(trace_id: str, span_id: str = "s1", *, tenant: str = "", service: str = "shop") -> Job:
    return Job(trace_id=trace_id, span_id=span_id, sample=SAMPLE, tenant=tenant, service=service)


async def queue(store: Store, *jobs: Job, now_ns: int = 2) -> None:
    for job in jobs:
        await store.append([part(job.trace_id)], forward={}, now_ns=now_ns)
        await store.decide_trace(job.trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=now_ns)


async def crashed(place: Place, *trace_ids: str) -> Store:
    """Open a store after a process ended while it read traces."""
    first = await place.open()
    await first.append([part(trace_id) for trace_id in trace_ids], forward={}, now_ns=1)
    await first.look(trace_ids)
    await first.aclose()
    return await place.open()


async def test_a_trace_that_was_read_at_a_crash_is_read_alone(place: Place) -> None:
    store = await crashed(place, "t1", "t2")
    record = QuarantineRecord(crashes=1, poison="")
    assert await store.look(("t1", "t2", "t3")) == {"t1": record, "t2": record}
    assert await store.look_alone("t1")
    assert not await store.look_alone("t2")
    await store.end_look(("t1",))
    assert await store.look_alone("t2")
    await store.aclose()


async def test_a_trace_that_is_set_aside_is_decided_and_its_queued_answers_end(place: Place) -> None:
    first = await place.open()
    await queue(first, job_of("t1"))
    assert await first.set_aside("t1", poison=QuarantineReason.CPU, now_ns=5) == 1
    assert await first.set_aside("t1", poison=QuarantineReason.CPU, now_ns=5) == 0
    await first.aclose()
    store = await place.open()
    record = QuarantineRecord(crashes=0, poison=QuarantineReason.CPU)
    assert (await store.undecided(), await store.look(("t1",))) == ((), {"t1": record})
    ledger = await store.ledger()
    assert (ledger.poison_traces, ledger.by_name()["failed:poison"]) == (1, 1)
    await store.aclose()


async def test_a_report_says_where_the_newest_carrier_of_an_answer_is(store: Store) -> None:
    await queue(store, job_of("t1"))
    (job,) = await store.take_jobs(1, now_ns=3)
    sinks = {"a": b"carrier", "b": b"carrier", "c": b"carrier", "d": b"carrier"}
    await store.finish(job, "judged", outbox_items=sinks, now_ns=4, carrier="c1", evaluator="e1")
    await store.delivered(await store.outbox_items("a", 1))
    await store.reject(await store.outbox_items("b", 1), reason="too large", now_ns=5)
    await store.delivered(await store.outbox_items("c", 1), unconfirmed="unreadable")
    (answer,) = (await store.trace_report("t1")).answers
    assert (answer.carrier, answer.evaluator, answer.ended_ns) == ("c1", "e1", 4)
    assert answer.deliveries == (
        Delivery(sink="a", state="delivered"),
        Delivery(sink="b", state="rejected", reason="too large"),
        Delivery(sink="c", state="unconfirmed", reason="unreadable"),
        Delivery(sink="d", state="waiting"),
    )
    sums = (await store.ledger()).outbox_items
    assert [{name: n for name, n in sums[sink].items() if n} for sink in "abcd"] == [
        {"put": 1, "delivered": 1},
        {"put": 1, "rejected": 1},
        {"put": 1, "unconfirmed": 1},
        {"put": 1, "waiting": 1},
    ]


async def test_a_report_on_an_open_trace_has_its_spans(store: Store) -> None:
    await store.append([part("t1", b"1")], forward={}, now_ns=5, holding=HoldMode.NEW)
    await store.append([part("t1", b"2")], forward={}, now_ns=6, cut=("t1",))
    report = await store.trace_report("t1")
    trace = report.trace
    assert trace is not None
    assert (trace.is_open, trace.is_cut, report.payloads) == (True, True, (b"1", b"2"))
    assert (trace.last_arrival_ns, trace.held_since_ns, trace.decided_ns) == (6, 5, None)
    await store.decide_trace("t1", jobs=[], outcomes=[], keep_spans=True, now_ns=7)
    report = await store.trace_report("t1")
    trace = report.trace
    assert trace is not None
    assert (trace.is_open, report.payloads, trace.held_since_ns, trace.decided_ns) == (False, (), None, 7)


@pytest.mark.slow
async def test_beside_others_only_what_one_has_under_way_is_unfinished(postgres: Postgres) -> None:
    place = PostgresPlace(postgres, postgres.new_database())
    async with aclosing(await place.open()) as store:
        await queue(store, job_of("t1"), job_of("t2"))
        assert await store.is_alone()
        assert await store.unfinished(now_ns=3) == 2
        async with aclosing(await place.open()) as other:
            assert not await store.is_alone()
            (job,) = await other.take_jobs(1, now_ns=3)
            assert await store.unfinished(now_ns=3) == 0
            assert await other.unfinished(now_ns=3) == 1
            await other.give_back(job)
        assert await store.unfinished(now_ns=3) == 2
