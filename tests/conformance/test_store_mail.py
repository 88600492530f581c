"""What every work store promises of mail between shards, run on each adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragtrace.answers.summary import AnswerSummary
from ragtrace_collector.store.port import MAIL, Mail, WorkStore
from tests.conformance.test_store_index import FIRST, JOB, kept
from tests.conformance.test_store_sessions import NAME, a_turn, due, turns
from tests.stores.adapters import Place

SECRET = b"mail that waits"


def with_turn(number: int, *, supersedes: str = "") -> Mail:
    return Mail(id=f"turn {number}{supersedes}", to=0, turn=a_turn(number, supersedes=supersedes))


def an_answer(number: int) -> AnswerSummary:
    summary = kept().summary
    return replace(summary, key=summary.key._replace(trace_id=f"{number:032x}"))


def with_answers(*numbers: int) -> Mail:
    return Mail(id=f"answers {numbers}", to=0, answers=tuple(map(an_answer, numbers)))


async def revision(store: WorkStore) -> int | None:
    session = await store.sessions.session(NAME)
    return session and session.revision


async def test_a_turn_from_another_shard_is_kept_in_its_session_once(store: WorkStore) -> None:
    assert await store.receive_mail([with_turn(2), with_turn(1)], now_ns=100) == 2
    assert await turns(store) == [b"turn 1", b"turn 2"]
    assert await revision(store) == 1
    assert await due(store, quiet=101) == ["s"]
    assert await store.sessions.end(NAME, revision=1, span_id="w", outbox_items={})
    assert await store.receive_mail([with_turn(1), with_turn(2)], now_ns=200) == 0
    assert await revision(store) == 1
    assert await due(store, quiet=1_000) == [], "what comes again opens a session again"


async def test_a_turn_that_comes_again_after_its_revision_does_not_come_back(store: WorkStore) -> None:
    await store.receive_mail([with_turn(1), with_turn(2, supersedes="c1")], now_ns=1)
    assert await store.receive_mail([with_turn(1)], now_ns=2) == 0
    assert await turns(store) == [b"turn 2"]


async def test_what_is_twice_in_a_list_counts_once(store: WorkStore) -> None:
    assert await store.receive_mail([with_turn(1), with_turn(1), with_answers(1)], now_ns=1) == 2
    assert await revision(store) == 0
    assert await store.receive_mail([], now_ns=1) == 0


async def test_answers_from_another_shard_wait_for_the_watch_once(store: WorkStore) -> None:
    await store.receive_mail([with_answers(3, 1)], now_ns=1)
    await store.receive_mail([with_answers(2)], now_ns=1)
    first, *_ = waiting = await store.watched(10)
    assert [int(answer.summary.key.trace_id, 16) for answer in waiting] == [3, 1, 2]
    assert [answer.id for answer in waiting] == sorted({answer.id for answer in waiting})
    await store.note_watch(states={}, up_to=first.id, notices=())
    assert await store.receive_mail([with_answers(3, 1), with_answers(2)], now_ns=2) == 0
    assert await store.watched(10) == tuple(waiting[1:])


async def test_received_mail_is_recognized_until_it_is_forgotten(store: WorkStore) -> None:
    await store.receive_mail([with_answers(1)], now_ns=1)
    await store.receive_mail([with_answers(2)], now_ns=2)
    await store.expire(decided_before_ns=0, ended_before_ns=2)
    assert await store.receive_mail([with_answers(2)], now_ns=3) == 0
    assert await store.receive_mail([with_answers(1)], now_ns=3) == 1


async def test_mail_of_an_answer_waits_in_the_outbox_and_is_no_carrier_of_it(store: WorkStore) -> None:
    await store.decide_trace(JOB.trace_id, jobs=[JOB], outcomes=(), keep_spans=True, now_ns=1)
    await store.take_jobs(1, now_ns=1)
    items = {"sink": b"carrier"}
    await store.finish(JOB, "judged", outbox_items=items, now_ns=2, carrier=FIRST, mail=SECRET)
    (item,) = await store.outbox_items(MAIL, 10)
    assert item.payload == SECRET
    (answer,) = (await store.trace_report(JOB.trace_id)).answers
    assert [delivery.sink for delivery in answer.deliveries] == ["sink"]
    ledger = await store.ledger()
    assert ledger.outbox_items[MAIL] == {"put": 1, "waiting": 1}
    assert ledger.left()["undelivered"] == 1
    assert ledger.adds_up
    await store.delivered([item])
    assert await store.outbox_items(MAIL, 10) == ()


async def test_an_answer_that_moved_meanwhile_sends_no_mail(store: WorkStore) -> None:
    await store.decide_trace(JOB.trace_id, jobs=[JOB], outcomes=(), keep_spans=True, now_ns=1)
    (job,) = await store.take_jobs(1, now_ns=1)
    await store.decide_trace(
        JOB.trace_id, jobs=(), outcomes=(), keep_spans=True, now_ns=2, moved={JOB.span_id: None}
    )
    assert await store.finish(job, "judged", outbox_items={}, now_ns=3, carrier=FIRST, mail=SECRET) is None
    assert await store.outbox_items(MAIL, 10) == ()


async def test_mail_that_was_received_survives_a_crash(place: Place, tmp_path: Path) -> None:
    store = await place.open()
    mail = [with_turn(1), with_answers(1)]
    await store.receive_mail(mail, now_ns=1)
    again = await place.as_of_now(tmp_path / "later").open()
    assert await again.receive_mail(mail, now_ns=2) == 0
    assert await turns(again) == [b"turn 1"]
    assert len(await again.watched(10)) == 1
    await again.aclose()
    await store.aclose()
