"""What every work store promises to sessions, run on each adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragtrace.conversations import SessionName
from ragtrace_collector.store.records import KeptTurn
from ragtrace_collector.store.store import Store
from tests.conformance.test_store_index import FIRST, JOB
from tests.stores.place import Place

NAME = SessionName(session="s", tenant="a")


def a_turn(number: int, *, name: SessionName = NAME, supersedes: str = "", most: int = 1_000) -> KeptTurn:
    return KeptTurn(
        name=name,
        trace_id=f"{number:032x}",
        span_id="a1",
        start_ns=number,
        carrier_span_id=f"c{number}",
        supersedes=supersedes,
        turn=b"turn %d" % number,
        place=b"place %d" % number,
        most_turns=most,
    )


async def finish(store: Store, turn: KeptTurn, *, now_ns: int) -> None:
    """End a job of its own with a turn."""
    job = replace(JOB, trace_id=f"{turn.start_ns:031x}{len(turn.carrier_span_id)}")
    await store.decide_trace(job.trace_id, jobs=[job], outcomes=(), keep_spans=True, now_ns=1)
    await store.take_jobs(1, now_ns=1)
    await store.finish(job, "judged", outbox_items={}, now_ns=now_ns, carrier=FIRST, turn=turn)


async def due(store: Store, *, quiet: int = 0, opened: int = 0, now_ns: int = 1_000) -> list[str]:
    found = await store.sessions.due(quiet_before_ns=quiet, opened_before_ns=opened, now_ns=now_ns)
    return [name.session for name in found]


async def turns(store: Store, name: SessionName = NAME) -> list[bytes]:
    found = await store.sessions.session(name)
    return [turn.turn for turn in found.turns] if found else []


async def test_a_session_is_due_when_it_is_quiet_or_old_and_until_it_has_ended(store: Store) -> None:
    await finish(store, a_turn(1), now_ns=100)
    await finish(store, a_turn(2), now_ns=200)
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
    await finish(store, a_turn(1), now_ns=100)
    await store.sessions.keep_check(NAME, "c1", digest="d", checked=b"said")
    assert await store.sessions.end(NAME, revision=0, span_id="w", outbox_items={})
    await finish(store, a_turn(2), now_ns=500)
    assert await due(store, quiet=501) == ["s"]
    assert await due(store, opened=500) == []
    found = await store.sessions.session(NAME)
    assert found is not None
    assert (found.span_id, found.attempts, found.revision) == ("w", 0, 1)
    assert [(turn.digest, turn.checked) for turn in found.turns] == [("d", b"said"), ("", None)]


async def test_a_new_evaluation_replaces_the_turn_also_at_another_span(store: Store) -> None:
    await finish(store, a_turn(1), now_ns=1)
    again = replace(a_turn(1), carrier_span_id="again", turn=b"again", supersedes="c1")
    await finish(store, again, now_ns=2)
    assert await turns(store) == [b"again"]
    moved = replace(a_turn(1), span_id="b2", carrier_span_id="moved!", turn=b"moved", supersedes="again")
    await finish(store, moved, now_ns=3)
    assert await turns(store) == [b"moved"]


async def test_ended_sessions_are_forgotten_and_open_ones_stay(store: Store) -> None:
    await finish(store, a_turn(1), now_ns=100)
    await finish(store, a_turn(2, name=SessionName(session="open")), now_ns=100)
    assert await store.sessions.end(NAME, revision=0, span_id="w", outbox_items={})
    assert await store.sessions.forget(before_ns=100) == 0
    assert await store.sessions.forget(before_ns=101) == 1
    assert await turns(store) == []
    assert await turns(store, SessionName(session="open")) == [b"turn 2"]


async def test_what_sessions_keep_survives_a_crash(place: Place, tmp_path: Path) -> None:
    store = await place.open()
    await finish(store, a_turn(1), now_ns=100)
    await store.sessions.keep_check(NAME, "c1", digest="d", checked=b"said")
    again = await place.as_of_now(tmp_path / "later").open()
    found = await again.sessions.session(NAME)
    assert found is not None
    assert [(turn.turn, turn.checked) for turn in found.turns] == [(b"turn 1", b"said")]
    assert await due(again, quiet=101) == ["s"]
    await again.aclose()
    await store.aclose()
