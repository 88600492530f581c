"""What every work store promises of the index, of sampling and of sessions, run on each adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace.answers.port import AnswerFilter
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.conversations import PlacedTurn, SessionName, Turn, turn_of_json
from ragtrace.model import Label, Sample, VerdictCounts
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace.traces.trace import Span
from ragtrace_collector.sampling import SamplingChanges, WindowRow
from ragtrace_collector.store.records import (
    IndexSize,
    Job,
    JudgedInput,
    KeptCarrier,
    StoreUnavailable,
)
from ragtrace_collector.store.store import Store
from tests.rag_spans import rag_trace
from tests.stores.place import Place

TRACE, SPAN = f"{0xA1:032x}", f"{0xB1:016x}"
FIRST, SECOND = f"{0xC1:016x}", f"{0xC2:016x}"
JOB = Job(
    trace_id=TRACE,
    span_id=SPAN,
    sample=Sample(rule="ratio", rate=1.0, probability=1.0),
    record_sha256="one",
    revisions_left=1,
)
HOUR_NS = 3_600_000_000_000


def kept(
    carrier: str = FIRST, *, span: str = SPAN, supersedes: str = "", time_ns: int = HOUR_NS
) -> KeptCarrier:
    summary = AnswerSummary(
        key=AnswerKey(TRACE, span),
        carrier_span_id=carrier,
        supersedes=supersedes,
        time_ns=time_ns,
        judged_ns=time_ns + 5,
        service="bot",
        label=Label.FAIL,
        metrics=(MetricSummary(name="faithfulness", label=Label.FAIL, score=0.5),),
        claims=VerdictCounts(supported=1, contradicted=1),
        probability=1.0,
        cost_usd=0.002,
    )
    return KeptCarrier(summary=summary, payload=encode([carrier_span(carrier)]))


def carrier_span(span_id: str) -> Span:
    return replace(rag_trace(0)[0], trace_id=TRACE, span_id=span_id, parent_span_id=SPAN)


async def carriers(store: Store, tenant: str = "") -> list[str]:
    return [span.span_id for span in (await store.content.kept(AnswerKey(TRACE, SPAN, tenant))).carriers]


async def valid(store: Store) -> list[str]:
    return [row.carrier_span_id async for row in store.answers.every(AnswerFilter())]


async def append(store: Store, trace_id: str = TRACE, payload: bytes = b"spans") -> None:
    ref = SpanRef(span_id=SPAN, parent_span_id=None)
    await store.append([TraceSlice(trace_id=trace_id, payload=payload, spans=(ref,))], forward={}, now_ns=1)


async def settle(store: Store, *jobs: Job, slices: int = 1, **options: object) -> None:
    trace_id = jobs[0].trace_id if jobs else TRACE
    await store.decide_trace(
        trace_id,
        jobs=jobs,
        outcomes=[],
        keep_spans=True,
        now_ns=2,
        slices=slices,
        **options,  # type: ignore[arg-type]
    )


async def judge(store: Store, found: KeptCarrier, *, slices: int = 1, addition: bytes = b"") -> None:
    (job,) = await store.take_jobs(1, now_ns=3)
    await store.finish(
        job,
        "judged",
        outbox_items={},
        now_ns=3,
        carrier=found.summary.carrier_span_id,
        judged=JudgedInput(record_sha256="one", slices=slices),
        kept=found,
        addition=addition,
    )


async def judge_one(store: Store, found: KeptCarrier | None = None) -> None:
    await append(store)
    await settle(store, JOB)
    await judge(store, found or kept())


async def test_rows_and_carriers_outlive_the_process(store: Store, place: Place) -> None:
    await judge_one(store)
    await store.aclose()
    reopened = await place.open()
    found = await reopened.index_size(), await carriers(reopened), await valid(reopened)
    await reopened.aclose()
    assert found == (IndexSize(rows=1, oldest_ns=HOUR_NS), [FIRST], [FIRST])


@pytest.mark.parametrize(
    "bounds", [{"began_before_ns": HOUR_NS + 1}, {"most_rows": 0}], ids=["by age", "by number"]
)
async def test_rows_go_by_age_and_by_number(store: Store, bounds: dict[str, int]) -> None:
    await judge_one(store)
    await store.expire(decided_before_ns=0, ended_before_ns=0, began_before_ns=HOUR_NS, most_rows=1)
    assert (await store.index_size()).rows == 1
    await store.expire(decided_before_ns=0, ended_before_ns=0, **bounds)
    assert await store.index_size() == IndexSize(rows=0, oldest_ns=None)


async def test_rows_go_before_a_sender_is_refused(place: Place) -> None:
    store = await place.open(max_bytes=2_000_000)
    await judge_one(store)
    await append(store, f"{0xA2:032x}", bytes(3_000_000))
    with pytest.raises(StoreUnavailable):
        await append(store, f"{0xA3:032x}")
    assert (await store.index_size()).rows == 0
    await store.aclose()


ROW = WindowRow("minute", 60, "acme", 5, 2.5, 1.0, 2)


async def test_counts_are_there_after_a_restart_and_the_newest_row_counts(place: Place) -> None:
    first = await place.open()
    await first.sampling.save(SamplingChanges(windows=(ROW, ROW._replace(tenant=""))))
    await first.sampling.save(SamplingChanges(windows=(ROW._replace(seen=6),)))
    await first.aclose()
    second = await place.open()
    windows = await second.sampling.load()
    await second.aclose()
    assert set(windows) == {ROW._replace(seen=6), ROW._replace(tenant="")}


NAME = SessionName(session="s", tenant="a")


def a_turn(number: int, *, name: SessionName = NAME, span_id: str = "a1", carrier: str = "") -> PlacedTurn:
    turn = Turn(
        trace_id=f"{number:032x}",
        span_id=span_id,
        start_ns=number,
        carrier_span_id=carrier or f"c{number}",
        question=None,
        answer=carrier or f"turn {number}",
        is_faithful=None,
    )
    return PlacedTurn(name=name, turn=turn, place=rag_trace(0)[0])


async def finish_turn(store: Store, placed: PlacedTurn, *, now_ns: int, replaces: str = "") -> None:
    """End a job of its own with a turn."""
    job = replace(JOB, trace_id=f"{now_ns:032x}", replaces=replaces)
    await store.decide_trace(job.trace_id, jobs=[job], outcomes=(), keep_spans=True, now_ns=1)
    await store.take_jobs(1, now_ns=1)
    await store.finish(job, "judged", outbox_items={}, now_ns=now_ns, carrier=FIRST, turn=placed)


async def due(store: Store, *, quiet: int = 0, opened: int = 0, now_ns: int = 1_000) -> list[str]:
    found = await store.sessions.due(quiet_before_ns=quiet, opened_before_ns=opened, now_ns=now_ns)
    return [name.session for name in found]


async def turns(store: Store, name: SessionName = NAME) -> list[str]:
    found = await store.sessions.session(name)
    return [turn_of_json(turn.turn).answer for turn in found.turns] if found else []


async def test_a_session_is_due_when_it_is_quiet_or_old_and_until_it_has_ended(store: Store) -> None:
    await finish_turn(store, a_turn(1), now_ns=100)
    await finish_turn(store, a_turn(2), now_ns=200)
    assert await due(store, quiet=200) == []
    assert await due(store, quiet=201) == ["s"]
    assert await due(store, opened=100) == []
    assert await due(store, opened=101) == ["s"]
    await store.sessions.postpone(NAME, until_ns=2_000)
    assert await due(store, quiet=201) == []
    assert await due(store, quiet=201, now_ns=2_000) == ["s"]
    found = await store.sessions.session(NAME)
    assert found is not None
    assert (found.attempts, found.revision) == (1, 1)
    assert await store.sessions.end(NAME, revision=1, span_id="w", outbox_items={"sink": b"span"})
    assert await due(store, quiet=201, now_ns=2_000) == []
    assert [item.payload for item in await store.outbox_items("sink", 10)] == [b"span"]


async def test_a_late_turn_opens_it_again_and_checks_that_still_hold_are_kept(store: Store) -> None:
    await finish_turn(store, a_turn(1), now_ns=100)
    await store.sessions.keep_check(NAME, "c1", digest="d", checked=b"said")
    assert await store.sessions.end(NAME, revision=0, span_id="w", outbox_items={})
    await finish_turn(store, a_turn(2), now_ns=500)
    assert await due(store, quiet=501) == ["s"]
    assert await due(store, opened=500) == []
    found = await store.sessions.session(NAME)
    assert found is not None
    assert (found.span_id, found.attempts, found.revision) == ("w", 0, 1)
    assert [(turn.digest, turn.checked) for turn in found.turns] == [("d", b"said"), ("", None)]


async def test_a_new_evaluation_replaces_the_turn_also_at_another_span(store: Store) -> None:
    await finish_turn(store, a_turn(1), now_ns=1)
    await finish_turn(store, a_turn(1, carrier="again"), now_ns=2, replaces="c1")
    assert await turns(store) == ["again"]
    await finish_turn(store, a_turn(1, span_id="b2", carrier="moved"), now_ns=3, replaces="again")
    assert await turns(store) == ["moved"]


async def test_what_sessions_keep_survives_a_crash(place: Place, tmp_path: Path) -> None:
    store = await place.open()
    await finish_turn(store, a_turn(1), now_ns=100)
    await store.sessions.keep_check(NAME, "c1", digest="d", checked=b"said")
    again = await place.as_of_now(tmp_path / "later").open()
    found = await again.sessions.session(NAME)
    assert found is not None
    assert ([turn.checked for turn in found.turns], await turns(again)) == ([b"said"], ["turn 1"])
    assert await due(again, quiet=101) == ["s"]
    await again.aclose()
    await store.aclose()
