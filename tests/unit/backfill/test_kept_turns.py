"""The turns that a back-fill keeps: on disk, read a session at a time, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from ragtrace.backfill import Progress
from ragtrace.backfill.progress import KeptTurns
from ragtrace.conversations import PlacedTurn, SessionName, SessionSettings, Turn
from ragtrace.traces.trace import Span

NAME = SessionName(session="endless")
SETTINGS = SessionSettings(max_turns=50, keep_ns=1_000)


def a_turn(number: int, *, start_ns: int | None = None) -> PlacedTurn:
    turn = Turn(
        trace_id=f"{number:032x}",
        span_id="1" * 16,
        start_ns=number if start_ns is None else start_ns,
        carrier_span_id=f"{number:016x}",
        question="How long?",
        answer="Refunds take 14 days. " * 100,
        is_faithful=True,
    )
    place = Span(
        trace_id=turn.trace_id, span_id="2" * 16, parent_span_id="1" * 16, name="", start_ns=0, end_ns=1
    )
    return PlacedTurn(name=NAME, turn=turn, place=place)


async def peak_of(path: Path, turns: int) -> int:
    """Return the most bytes that reading a session of so many turns takes."""
    with Progress(path) as progress:
        kept = KeptTurns(progress=progress, evaluator="v")
        for number in range(turns):
            await kept.add(a_turn(number))
        tracemalloc.start()
        try:
            (session,) = kept.sessions(NAME, SETTINGS)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert [one.turn.start_ns for one in session] == list(range(turns - 50, turns))
    return peak


@pytest.mark.slow
async def test_a_session_without_end_is_read_in_memory_that_does_not_grow_with_it(tmp_path: Path) -> None:
    small = await peak_of(tmp_path / "small.db", 300)
    large = await peak_of(tmp_path / "large.db", 1_500)
    assert large < 1.3 * small


async def test_turns_far_apart_under_one_id_are_sessions_of_their_own(tmp_path: Path) -> None:
    with Progress(tmp_path / "progress.db") as progress:
        kept = KeptTurns(progress=progress, evaluator="v")
        for number, start_ns in enumerate((5_000, 0, 500, 4_500)):
            await kept.add(a_turn(number, start_ns=start_ns))
        found = [[one.turn.start_ns for one in session] for session in kept.sessions(NAME, SETTINGS)]
    assert found == [[0, 500], [4_500, 5_000]]


async def test_another_evaluator_has_turns_of_its_own(tmp_path: Path) -> None:
    with Progress(tmp_path / "progress.db") as progress:
        await KeptTurns(progress=progress, evaluator="v").add(a_turn(1))
        other = KeptTurns(progress=progress, evaluator="w")
        assert list(other.sessions(NAME, SETTINGS)) == []
        assert other.open(before_ns=10**18) == []


async def test_texts_come_back_from_a_carrier_and_are_not_lost_to_one_without(tmp_path: Path) -> None:
    with Progress(tmp_path / "progress.db") as progress:
        kept = KeptTurns(progress=progress, evaluator="v")
        whole = a_turn(1)
        bare = PlacedTurn(name=NAME, turn=whole.turn.without_text(), place=whole.place)
        await kept.add(whole)
        await kept.add(bare)
        await kept.add_known(bare)
        assert [one.turn.has_text for (one,) in kept.sessions(NAME, SETTINGS)] == [True]
        await kept.end(NAME)
        await kept.forget(before_ns=10)
        assert [one.turn.has_text for (one,) in kept.sessions(NAME, SETTINGS)] == [False]
        await kept.add(whole)
        assert [one.turn.has_text for (one,) in kept.sessions(NAME, SETTINGS)] == [True]
