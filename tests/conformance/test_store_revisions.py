"""What every work store promises about answers that late spans change, run on each adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.records import Job, JudgedInput, TraceDecided
from ragtrace_collector.store.store import Store

JOB = Job(
    trace_id="t1",
    span_id="s1",
    sample=Sample(rule="ratio", rate=1.0, probability=1.0),
    record_sha256="one",
    revisions_left=1,
)
OTHER = replace(JOB, record_sha256="other")


async def append(store: Store, *, cut: tuple[str, ...] = ()) -> None:
    part = TraceSlice(trace_id="t1", payload=b"spans", spans=(SpanRef(span_id="s1", parent_span_id=None),))
    await store.append([part], forward={}, now_ns=1, cut=cut)


async def settle(store: Store, *jobs: Job, slices: int, **options: object) -> TraceDecided:
    return await store.decide_trace(
        "t1",
        jobs=jobs,
        outcomes=[],
        keep_spans=True,
        now_ns=2,
        slices=slices,
        **options,  # type: ignore[arg-type]
    )


async def judge(store: Store, *, carrier: str = "c1", slices: int = 1) -> Job:
    (job,) = await store.take_jobs(1, now_ns=3)
    judged = JudgedInput(record_sha256="one", slices=slices)
    await store.finish(job, "judged", outbox_items={}, now_ns=3, carrier=carrier, judged=judged)
    return job


async def counted(store: Store) -> dict[str, int]:
    names = ("queued", "leased", "judged", "sampled_out")
    found = (await store.ledger()).by_name()
    return {name: number for name, number in found.items() if name in names and number}


async def test_a_changed_record_is_judged_again_and_replaces_its_carrier(store: Store) -> None:
    await append(store)
    await settle(store, JOB, slices=1)
    await judge(store)
    assert (await settle(store, OTHER, slices=2)).revised == 1
    (again,) = await store.take_jobs(1, now_ns=4)
    assert (again.carriers, again.replaces, again.revisions_left, again.attempts) == (1, "c1", 0, 0)


async def test_a_record_that_changed_while_it_was_judged_is_queued_at_its_end(store: Store) -> None:
    await append(store)
    await settle(store, JOB, slices=1)
    (job,) = await store.take_jobs(1, now_ns=3)
    await settle(store, OTHER, slices=2)
    await store.finish(job, "judged", outbox_items={}, now_ns=4, judged=JudgedInput("one", 1))
    assert await counted(store) == {"queued": 1}


@pytest.mark.parametrize("is_judged", [True, False], ids=["judged", "waiting"])
async def test_an_answer_that_moves_is_counted_once(store: Store, is_judged: bool) -> None:
    await append(store)
    await settle(store, JOB, slices=1)
    if is_judged:
        await judge(store)
    settled = await settle(store, replace(OTHER, span_id="s2"), slices=2, moved={"s1": "s2"})
    (job,) = await store.take_jobs(9, now_ns=4)
    assert (settled.queued, settled.moved) == (1, 1)
    assert (job.span_id, job.replaces, job.carriers) == ("s2", "c1" if is_judged else "", 0)
    assert await counted(store) == {"leased": 1}


async def test_an_answer_whose_spans_were_forgotten_rests(store: Store) -> None:
    await append(store)
    await settle(store, JOB, slices=1)
    await judge(store)
    assert await store.expire(decided_before_ns=9, ended_before_ns=0) == 1
    await append(store)
    assert (await store.spans("t1")).answers == ()
    assert (await settle(store, OTHER, slices=1)).revised == 0
    assert await counted(store) == {"judged": 1}


async def test_a_trace_is_settled_as_far_as_its_spans_were_read(store: Store) -> None:
    await append(store)
    await append(store)
    await store.decide_trace("t1", jobs=[], outcomes=[], keep_spans=False, now_ns=2, slices=1)
    assert await store.undecided() == ("t1",)
    assert len((await store.spans("t1")).payloads) == 2
    await store.decide_trace("t1", jobs=[], outcomes=[], keep_spans=False, now_ns=2, slices=2)
    assert await store.undecided() == ()
    assert (await store.spans("t1")).payloads == ()


async def test_a_trace_that_lost_spans_is_marked(store: Store) -> None:
    await append(store)
    assert not (await store.spans("t1")).is_cut
    await append(store, cut=("t1", "t2"))
    assert (await store.spans("t1")).is_cut
    assert (await store.spans("t2")).is_cut
    assert await store.undecided() == ("t1",)


async def test_a_carrier_that_nothing_supersedes_yet_waits_for_what_does(store: Store) -> None:
    await append(store)
    await settle(store, JOB, slices=1)
    await judge(store)
    assert (await settle(store, slices=2, moved={"s1": None})).moved == 1
    assert (await store.spans("t1")).answers == ("s1",)
    assert (await settle(store, replace(OTHER, span_id="s2"), slices=3, moved={"s1": "s2"})).moved == 0
    (job,) = await store.take_jobs(9, now_ns=4)
    assert (job.span_id, job.replaces) == ("s2", "c1")
    assert (await store.spans("t1")).answers == ("s2",)
