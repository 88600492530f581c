"""What every work store promises of jobs, revisions, reports, dead letters, unread traces and drift."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace.drift import AnchorRun, AnchorScore, SeenModel
from ragtrace.model import Sample
from ragtrace.traces.extract import Unread
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.ledger import Delivery
from ragtrace_collector.sampling import Decision
from ragtrace_collector.store.records import (
    Job,
    JudgedInput,
    QuarantineReason,
    QuarantineRecord,
    StoreUnavailable,
    TraceDecided,
)
from ragtrace_collector.store.store import Store
from tests.backends.postgres_server import Postgres
from tests.stores.place import Place, PostgresPlace

SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)
JOB = Job(trace_id="t1", span_id="s1", sample=SAMPLE, record_sha256="one", revisions_left=1)
OTHER = replace(JOB, record_sha256="other")


def part(trace_id: str, payload: bytes = b"spans") -> TraceSlice:
    ref = SpanRef(span_id="s1", parent_span_id=None)
    return TraceSlice(trace_id=trace_id, payload=payload, spans=(ref,))


async def append(store: Store, *, cut: tuple[str, ...] = ()) -> None:
    await store.append([part("t1")], forward={}, now_ns=1, cut=cut)


async def settle(store: Store, *jobs: Job, slices: int | None = None, **options: object) -> TraceDecided:
    trace_id = jobs[0].trace_id if jobs else "t1"
    given: dict[str, object] = {"outcomes": [], "keep_spans": True, "now_ns": 2, **options}
    return await store.decide_trace(trace_id, jobs=jobs, slices=slices, **given)  # type: ignore[arg-type]


async def queue(store: Store, *trace_ids: str, now_ns: int = 1) -> None:
    for trace_id in trace_ids or ("t1",):
        await store.append([part(trace_id)], forward={}, now_ns=now_ns)
        await settle(store, replace(JOB, trace_id=trace_id), now_ns=now_ns)


async def take(store: Store) -> Job:
    (job,) = await store.take_jobs(1, now_ns=3)
    return job


async def finish(store: Store, job: Job, *, slices: int = 1, carrier: str = "") -> None:
    judged = JudgedInput(record_sha256="one", slices=slices)
    await store.finish(job, "judged", outbox_items={}, now_ns=4, carrier=carrier, judged=judged)


async def queue_and_judge(store: Store) -> None:
    await append(store)
    await settle(store, JOB, slices=1)
    await finish(store, await take(store), carrier="c1")


async def counted(store: Store) -> dict[str, int]:
    names = ("queued", "leased", "judged", "sampled_out")
    found = (await store.ledger()).by_name()
    return {name: number for name, number in found.items() if name in names and number}


async def test_a_lease_ends_with_the_process(store: Store, place: Place) -> None:
    await queue(store)
    await store.take_jobs(10, now_ns=2)
    await store.aclose()
    async with aclosing(await place.open()) as reopened:
        job = await take(reopened)
    assert (job.span_id, job.attempts, job.crashes) == ("s1", 0, 1)


async def test_a_postponed_job_is_due_at_its_time(store: Store) -> None:
    await queue(store)
    await store.postpone(await take(store), due_ns=100, reason="judge_timeout")
    assert await store.take_jobs(1, now_ns=99) == ()
    (again,) = await store.take_jobs(1, now_ns=100)
    assert (again.attempts, again.reason) == (1, "judge_timeout")


async def test_a_job_that_was_leased_when_a_process_ended_is_leased_alone(store: Store, place: Place) -> None:
    await queue(store, "t0", "t1", "t2")
    await store.take_jobs(10, now_ns=9)
    await store.aclose()
    leased = []
    async with aclosing(await place.open()) as reopened:
        await queue(reopened, "t3")
        while jobs := await reopened.take_jobs(10, now_ns=9):
            assert await reopened.take_jobs(10, now_ns=9) == ()
            leased.append([job.crashes for job in jobs])
            await finish(reopened, jobs[0])
    assert leased == [[1], [1], [1], [0]]


async def test_a_finished_job_is_not_queued_again(store: Store) -> None:
    await queue_and_judge(store)
    assert await settle(store, JOB, slices=2) == TraceDecided(queued=0, ended=0)
    assert await counted(store) == {"judged": 1}


async def test_an_answer_that_was_sampled_out_can_be_brought_back_once(store: Store) -> None:
    await append(store)
    await settle(store, outcomes=[Decision(span_id="s1", sample=SAMPLE, left_out="sampled_out")])
    for brought_back in (1, 0):
        settled = await settle(store, JOB)
        assert settled == TraceDecided(queued=brought_back, ended=0, brought_back=brought_back)
    assert (await take(store)).sample == SAMPLE
    assert await counted(store) == {"leased": 1}


async def test_parcels_are_read_in_bounded_portions(store: Store) -> None:
    for size in (500, 600, 2_000, 10):
        await store.append([], forward={"sink": bytes(size)}, now_ns=1)
    sizes = []
    while portion := await store.outbox_items("sink", 10, most_bytes=1_000):
        sizes.append([len(outbox_item.payload) for outbox_item in portion])
        await store.delivered(portion)
    assert sizes == [[500], [600], [2_000], [10]]


async def test_a_full_store_keeps_nothing_of_the_request(place: Place) -> None:
    async with aclosing(await place.open(max_bytes=400_000)) as store:
        await store.append([part("t1", bytes(500_000))], forward={}, now_ns=1)
        with pytest.raises(StoreUnavailable, match="max_bytes"):
            await store.append([part("t2")], forward={"sink": b"original"}, now_ns=2)
        assert ((await store.spans("t2")).payloads, await store.outbox_items("sink", 1)) == ((), ())


async def test_a_trace_with_an_open_job_does_not_expire(store: Store) -> None:
    await queue(store)
    assert await store.expire(decided_before_ns=100, ended_before_ns=100) == 0
    assert (await store.spans("t1")).payloads == (b"spans",)


async def test_a_record_that_changed_while_it_was_judged_is_queued_at_its_end(store: Store) -> None:
    await append(store)
    await settle(store, JOB, slices=1)
    job = await take(store)
    await settle(store, OTHER, slices=2)
    await finish(store, job)
    assert await counted(store) == {"queued": 1}


async def test_an_answer_whose_spans_were_forgotten_rests(store: Store) -> None:
    await queue_and_judge(store)
    assert await store.expire(decided_before_ns=9, ended_before_ns=0) == 1
    await append(store)
    assert (await store.spans("t1")).answers == ()
    assert (await settle(store, OTHER, slices=1)).revised == 0
    assert await counted(store) == {"judged": 1}


async def test_a_trace_is_settled_as_far_as_its_spans_were_read(store: Store) -> None:
    await append(store)
    await append(store, cut=("t1",))
    await settle(store, keep_spans=False, slices=1)
    found = await store.spans("t1")
    assert (await store.undecided(), len(found.payloads), found.is_cut) == (("t1",), 2, True)
    await settle(store, keep_spans=False, slices=2)
    assert (await store.undecided(), (await store.spans("t1")).payloads) == ((), ())


async def test_a_carrier_that_nothing_supersedes_yet_waits_for_what_does(store: Store) -> None:
    await queue_and_judge(store)
    assert (await settle(store, slices=2, moved={"s1": None})).moved == 1
    assert (await store.spans("t1")).answers == ("s1",)
    assert (await settle(store, replace(OTHER, span_id="s2"), slices=3, moved={"s1": "s2"})).moved == 0
    job = await take(store)
    assert (job.span_id, job.replaces) == ("s2", "c1")
    assert (await store.spans("t1")).answers == ("s2",)


async def test_a_trace_that_was_read_at_a_crash_is_read_alone(place: Place) -> None:
    async with aclosing(await place.open()) as first:
        await first.append([part("t1"), part("t2")], forward={}, now_ns=1)
        await first.look(("t1", "t2"))
    async with aclosing(await place.open()) as store:
        record = QuarantineRecord(crashes=1, poison="")
        assert await store.look(("t1", "t2", "t3")) == {"t1": record, "t2": record}
        assert await store.look_alone("t1")
        assert not await store.look_alone("t2")
        await store.end_look(("t1",))
        assert await store.look_alone("t2")


async def test_a_trace_that_is_set_aside_is_decided_and_its_queued_answers_end(place: Place) -> None:
    async with aclosing(await place.open()) as first:
        await queue(first)
        found = [await first.set_aside("t1", poison=QuarantineReason.CPU, now_ns=5) for _ in range(2)]
        assert found == [1, 0]
    async with aclosing(await place.open()) as store:
        record = QuarantineRecord(crashes=0, poison=QuarantineReason.CPU)
        assert (await store.undecided(), await store.look(("t1",))) == ((), {"t1": record})
        ledger = await store.ledger()
        assert (ledger.poison_traces, ledger.by_name()["failed:poison"]) == (1, 1)


async def test_a_report_says_where_the_newest_carrier_of_an_answer_is(store: Store) -> None:
    await queue(store)
    sinks = dict.fromkeys("abcd", b"carrier")
    await store.finish(
        await take(store), "judged", outbox_items=sinks, now_ns=4, carrier="c1", evaluator="e1"
    )
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
    for sink, state in zip("abcd", ("delivered", "rejected", "unconfirmed", "waiting"), strict=True):
        assert {name: number for name, number in sums[sink].items() if number} == {"put": 1, state: 1}


@pytest.mark.slow
async def test_beside_others_only_what_one_has_under_way_is_unfinished(postgres: Postgres) -> None:
    place = PostgresPlace(postgres, postgres.new_database())
    async with aclosing(await place.open()) as store:
        await queue(store, "t1", "t2")
        assert await store.is_alone()
        assert await store.unfinished(now_ns=3) == 2
        async with aclosing(await place.open()) as other:
            assert not await store.is_alone()
            job = await take(other)
            assert [await each.unfinished(now_ns=3) for each in (store, other)] == [0, 1]
            await other.give_back(job)
        assert await store.unfinished(now_ns=3) == 2


async def test_dead_letters_are_counted_for_good_and_are_no_tenants(store: Store) -> None:
    await store.count_dead_letters(["empty", "not_otlp"])
    await store.count_dead_letters(["empty"])
    assert (await store.ledger()).dead_letters == {"empty": 2, "not_otlp": 1}
    assert (await store.ledger("acme")).dead_letters == {}


async def decide_unread(store: Store, trace_id: str, producer: str | None) -> None:
    found = Unread(producer=producer, attributes=("acme.q",), mapping={}) if producer else None
    await store.append([part(trace_id)], forward={}, now_ns=1)
    await store.decide_trace(trace_id, jobs=[], outcomes=[], keep_spans=True, now_ns=1, unread=found)


async def unread(store: Store, tenant: str | None = None) -> dict[str, int]:
    return {each.producer: each.number for each in (await store.ledger(tenant)).unread}


async def test_an_unread_trace_is_counted_once_under_the_producer_that_it_has_now(store: Store) -> None:
    for producer, sums in (("shop", {"shop": 1}), ("shop", {"shop": 1}), ("desk", {"shop": 0, "desk": 1})):
        await decide_unread(store, "t1@acme", producer)
        assert await unread(store, "acme") == await unread(store) == sums
    assert await unread(store, "other") == {}
    await decide_unread(store, "t1@acme", None)
    assert await unread(store) == {"shop": 0, "desk": 0}


async def test_senders_that_name_ever_new_producers_fill_a_bounded_number_of_accounts(store: Store) -> None:
    for number in range(130):
        await decide_unread(store, f"t{number}", f"{number}{'x' * 1000}")
    found = await unread(store)
    assert (len(found), sum(found.values())) == (101, 130)
    assert max(map(len, found)) <= 200


async def test_what_is_counted_outlives_the_traces_and_a_crash(place: Place, tmp_path: Path) -> None:
    async with aclosing(await place.open()) as store:
        await decide_unread(store, "t1", "shop")
        await store.count_dead_letters(["empty"])
        await store.expire(decided_before_ns=2, ended_before_ns=0)
        assert (await store.trace_report("t1")).trace is None
        async with aclosing(await place.as_of_now(tmp_path / "later").open()) as again:
            assert await unread(again) == {"shop": 1}
            assert (await again.ledger()).dead_letters == {"empty": 1}


RUN = AnchorRun(
    evaluator_version="v",
    anchors_sha256="a",
    judge="openai:m",
    began_ns=1,
    ended_ns=2,
    anchors=1,
    scores=(AnchorScore(anchor="x", metric="faithfulness", score=0.5, passed=False, supported=True),),
)


def seen(answered: str, fingerprint: str = "", *, at: int = 1, requested: str = "openai:m") -> SeenModel:
    return SeenModel(requested=requested, answered=answered, fingerprint=fingerprint, first_ns=at, last_ns=at)


async def test_runs_of_anchors_survive_a_restart_and_are_due_when_the_last_is_old(place: Place) -> None:
    async with aclosing(await place.open()) as first:
        for began_ns in (1, 10):
            await first.drift.add_run(replace(RUN, began_ns=began_ns))
    async with aclosing(await place.open()) as store:
        assert [run.began_ns for run in await store.drift.runs()] == [1, 10]
        due = [await store.drift.claim("v", now_ns=now_ns, every_ns=5) for now_ns in (14, 15, 6, 5)]
        assert due == [False, True, False, True]
        assert await store.drift.claim("w", now_ns=10, every_ns=5)
        await store.drift.begin_baseline()
        assert await store.drift.runs() == ()


async def test_the_first_model_is_no_change_and_another_one_is_a_change_once(store: Store) -> None:
    assert await store.drift.see_models([seen("m-1"), seen("m-1", "fp")]) == ()
    assert await store.drift.see_models([seen("m-2", at=5)]) == (seen("m-2", at=5),)
    assert await store.drift.see_models([seen("m-2", at=6), seen("m-1", at=6)]) == ()
    assert await store.drift.see_models([seen("o", requested="openai:o")]) == ()
    found = [(model.answered, model.first_ns, model.last_ns) for model in await store.drift.seen_models()]
    assert found == [("m-1", 1, 6), ("m-1", 1, 1), ("m-2", 5, 6), ("o", 1, 1)]
