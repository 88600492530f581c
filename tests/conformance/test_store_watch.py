"""What every work store promises to the watch over objectives, run on each adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragtrace.answers.summary import MetricSummary
from ragtrace.model import Label
from ragtrace_collector.store.port import Notice, WorkStore
from tests.conformance.test_store_index import FIRST, JOB, kept
from tests.stores.place import Place


async def judge(store: WorkStore, number: int, *, is_watched: bool = True) -> None:
    job = replace(JOB, trace_id=f"{number:032x}")
    summary = replace(kept().summary, key=kept().summary.key._replace(trace_id=job.trace_id))
    await store.decide_trace(job.trace_id, jobs=[job], outcomes=(), keep_spans=True, now_ns=1)
    await store.take_jobs(1, now_ns=1)
    found = replace(kept(), summary=summary, is_watched=is_watched)
    await store.finish(job, "judged", outbox_items={}, now_ns=2, carrier=FIRST, kept=found)


async def test_judged_answers_wait_for_the_watch_in_their_order(store: WorkStore) -> None:
    for number in (3, 1, 2):
        await judge(store, number)
    await judge(store, 4, is_watched=False)
    waiting = await store.watched(10)
    assert [int(found.summary.key.trace_id, 16) for found in waiting] == [3, 1, 2]
    assert [found.id for found in waiting] == sorted({found.id for found in waiting})
    assert await store.watched(2) == waiting[:2]
    (summary,) = {replace(found.summary, key=waiting[0].summary.key) for found in waiting}
    assert (summary.service, summary.probability, summary.judged_ns) == ("bot", 1.0, kept().summary.judged_ns)
    assert summary.metrics == (MetricSummary(name="faithfulness", label=Label.FAIL, score=0.5),)


async def test_states_answers_and_notices_change_together(store: WorkStore) -> None:
    for number in (1, 2):
        await judge(store, number)
    first, second = await store.watched(10)
    await store.note_watch(
        states={"a": "one", "b": "two"},
        up_to=first.id,
        notices=[Notice(sink="alert:x", payload=b"1"), Notice(sink="alert:x", payload=b"2")],
    )
    assert await store.watched(10) == (second,)
    assert await store.watch_states() == {"a": "one", "b": "two"}
    assert [item.payload for item in await store.outbox_items("alert:x", 10)] == [b"1", b"2"]
    await store.note_watch(states={"a": None, "b": "three"}, up_to=second.id, notices=())
    assert await store.watch_states() == {"b": "three"}
    assert await store.watched(10) == ()


async def test_what_the_watch_keeps_survives_a_crash(place: Place, tmp_path: Path) -> None:
    store = await place.open()
    await judge(store, 1)
    (first,) = await store.watched(10)
    await store.note_watch(states={"a": "one"}, up_to=first.id, notices=())
    await judge(store, 2)
    again = await place.as_of_now(tmp_path / "later").open()
    (second,) = await again.watched(10)
    assert second.id > first.id
    assert await again.watch_states() == {"a": "one"}
    assert int(second.summary.key.trace_id, 16) == 2
    await again.aclose()
    await store.aclose()
