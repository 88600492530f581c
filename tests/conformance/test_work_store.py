"""What every work store promises, run on each adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.records import Job, Outcome, StoreUnavailable, TraceDecided
from ragtrace_collector.store.store import Store
from tests.stores.place import Place

SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)
JOB = Job(trace_id="t1", span_id="s1", sample=SAMPLE)


def part(trace_id: str, payload: bytes = b"spans") -> TraceSlice:
    ref = SpanRef(span_id="s1", parent_span_id=None)
    return TraceSlice(trace_id=trace_id, payload=payload, spans=(ref,))


async def queue_one(store: Store, trace_id: str = "t1", *, now_ns: int = 1) -> None:
    await store.append([part(trace_id)], forward={}, now_ns=now_ns)
    job = replace(JOB, trace_id=trace_id)
    await store.decide_trace(trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=now_ns)


async def test_what_was_acknowledged_is_there_after_a_restart(store: Store, place: Place) -> None:
    await store.append([part("t1", b"1")], forward={"sink": b"original"}, now_ns=5)
    await store.aclose()
    reopened = await place.open()
    (undecided,) = await reopened.undecided()
    payloads = (await reopened.spans("t1")).payloads
    (outbox_item,) = await reopened.outbox_items("sink", 10)
    await reopened.aclose()
    assert (undecided, payloads) == ("t1", (b"1",))
    assert outbox_item.payload == b"original"


async def test_a_lease_ends_with_the_process(store: Store, place: Place) -> None:
    await queue_one(store)
    await store.take_jobs(10, now_ns=2)
    await store.aclose()
    reopened = await place.open()
    (job,) = await reopened.take_jobs(10, now_ns=2)
    await reopened.aclose()
    assert (job.span_id, job.attempts, job.crashes) == ("s1", 0, 1)


async def test_a_postponed_job_is_due_at_its_time(store: Store) -> None:
    await queue_one(store)
    (job,) = await store.take_jobs(1, now_ns=2)
    await store.postpone(job, due_ns=100, reason="judge_timeout")
    assert await store.take_jobs(1, now_ns=99) == ()
    (again,) = await store.take_jobs(1, now_ns=100)
    assert (again.attempts, again.reason) == (1, "judge_timeout")


async def crashed(place: Place) -> Store:
    """Open the store after a process ended with all jobs leased."""
    store = await place.open()
    await store.take_jobs(10, now_ns=9)
    await store.aclose()
    return await place.open()


async def test_a_job_that_was_leased_when_a_process_ended_is_leased_alone(store: Store, place: Place) -> None:
    for number in range(3):
        await queue_one(store, f"t{number}")
    await store.aclose()
    reopened = await crashed(place)
    await queue_one(reopened, "t3")
    leased = []
    while jobs := await reopened.take_jobs(10, now_ns=9):
        assert await reopened.take_jobs(10, now_ns=9) == ()
        leased.append([job.crashes for job in jobs])
        await reopened.finish(jobs[0], "judged", outbox_items={}, now_ns=9)
    await reopened.aclose()
    assert leased == [[1], [1], [1], [0]]


async def test_finishing_a_job_hands_its_carrier_over_in_the_same_step(store: Store) -> None:
    await queue_one(store)
    (job,) = await store.take_jobs(1, now_ns=2)
    await store.finish(job, "judged", outbox_items={"a": b"carrier", "b": b"carrier"}, now_ns=3)
    assert (await store.ledger()).by_name()["judged"] == 1
    assert [outbox_item.payload for outbox_item in await store.outbox_items("b", 10)] == [b"carrier"]


async def test_a_finished_job_is_not_queued_again(store: Store) -> None:
    await queue_one(store)
    (job,) = await store.take_jobs(1, now_ns=2)
    await store.finish(job, "judged", outbox_items={}, now_ns=3)
    assert await store.decide_trace("t1", jobs=[JOB], outcomes=[], keep_spans=True, now_ns=4) == TraceDecided(
        queued=0, ended=0
    )


async def test_an_answer_that_was_sampled_out_can_be_brought_back_once(store: Store) -> None:
    await store.append([part("t1")], forward={}, now_ns=1)
    left_out = Outcome(span_id=JOB.span_id, outcome="sampled_out")
    await store.decide_trace("t1", jobs=[], outcomes=[left_out], keep_spans=True, now_ns=2)
    for brought_back in (1, 0):
        settled = await store.decide_trace("t1", jobs=[JOB], outcomes=[], keep_spans=True, now_ns=3)
        assert settled == TraceDecided(queued=brought_back, ended=0, brought_back=brought_back)
    (job,) = await store.take_jobs(10, now_ns=3)
    assert (job.span_id, job.sample) == (JOB.span_id, SAMPLE)
    assert "sampled_out" not in (await store.ledger()).by_name()


async def test_parcels_are_read_in_bounded_portions(store: Store) -> None:
    for size in (500, 600, 2_000, 10):
        await store.append([], forward={"sink": bytes(size)}, now_ns=1)
    sizes = []
    while portion := await store.outbox_items("sink", 10, most_bytes=1_000):
        sizes.append([len(outbox_item.payload) for outbox_item in portion])
        await store.delivered(portion)
    assert sizes == [[500], [600], [2_000], [10]]


async def test_a_full_store_keeps_nothing_of_the_request(place: Place) -> None:
    store = await place.open(max_bytes=400_000)
    await store.append([part("t1", bytes(500_000))], forward={}, now_ns=1)
    with pytest.raises(StoreUnavailable, match="max_bytes"):
        await store.append([part("t2")], forward={"sink": b"original"}, now_ns=2)
    assert ((await store.spans("t2")).payloads, await store.outbox_items("sink", 1)) == ((), ())
    await store.aclose()


async def test_a_trace_with_an_open_job_does_not_expire(store: Store) -> None:
    await queue_one(store)
    assert await store.expire(decided_before_ns=100, ended_before_ns=100) == 0
    assert (await store.spans("t1")).payloads == (b"spans",)
