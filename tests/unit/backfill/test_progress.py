"""What a run keeps on disk: its turns, read a session at a time, and what it may spend."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backfill import Progress
from ragtrace.backfill.progress import KeptTurns, RunLedger, run_budget
from ragtrace.budget import BudgetGuard, CostEstimator, ExceededLimit, Limit, OverBudget, Price, Spend
from ragtrace.conversations import PlacedTurn, SessionName, SessionSettings, Turn
from ragtrace.errors import JudgeOverBudget
from ragtrace.model import Usage
from ragtrace.process import SystemClock
from ragtrace.traces.trace import Span
from tests.patience import PATIENCE_S

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
    small = await peak_of(tmp_path / "small.db", 60)
    large = await peak_of(tmp_path / "large.db", 400)
    assert large < 1.3 * small


LIMIT = Limit(calls=6, tokens=3_000, usd_nano=20_000_000)
ESTIMATOR = CostEstimator(price=Price(input=10, output=10))

requests = st.lists(
    st.tuples(st.integers(1, 1_500), st.floats(0, 1), st.integers(0, 3), st.booleans()), max_size=10
)
"""Largest tokens, the share of them that it takes, for how many turns of the loop, if it is lost."""


def guard_of(progress: Progress, limit: Limit) -> BudgetGuard:
    return BudgetGuard(
        budget=run_budget("run", limit), ledger=RunLedger(progress=progress), clock=SystemClock()
    )


class Lost(Exception):
    """Nobody knows what the request took."""


async def spend(guard: BudgetGuard, progress: Progress, request: tuple[int, float, int, bool]) -> None:
    tokens, share, turns, is_lost = request
    largest = Usage(calls=1, input_tokens=tokens)
    try:
        async with guard.spending(ESTIMATOR, largest) as request_cost:
            assert LIMIT.exceeded_by(progress.spent("run")) is None
            for _ in range(turns):
                await asyncio.sleep(0)
            if is_lost:
                raise Lost
            request_cost.usage = Usage(calls=1, input_tokens=max(1, int(tokens * share)))
    except (JudgeOverBudget, Lost):
        pass


@pytest.mark.slow
@given(first=requests, second=requests)
def test_what_a_run_may_spend_is_never_exceeded_also_by_a_run_that_goes_on(
    first: list[tuple[int, float, int, bool]], second: list[tuple[int, float, int, bool]]
) -> None:
    async def all_at_once(progress: Progress, wanted: list[tuple[int, float, int, bool]]) -> None:
        guard = guard_of(progress, LIMIT)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for request in wanted:
                group.create_task(spend(guard, progress, request))

    with TemporaryDirectory() as folder:
        for wanted in (first, second):
            with Progress(Path(folder) / "progress.db") as progress:
                asyncio.run(all_at_once(progress, wanted))
                assert LIMIT.exceeded_by(progress.spent("run")) is None


async def test_a_request_larger_than_a_whole_limit_of_a_run_is_never_made(tmp_path: Path) -> None:
    with Progress(tmp_path / "progress.db") as progress:
        guard = guard_of(progress, Limit(tokens=100))
        with pytest.raises(OverBudget, match=r"0 of 100 tokens are spent, .* may take 101") as over:
            async with guard.spending(ESTIMATOR, Usage(calls=1, input_tokens=101)):
                pytest.fail("it was made")
        assert over.value.exceeded.limit == "run_tokens"
        assert over.value.exceeded.is_final
        assert progress.spent("run") == Spend()


async def test_what_a_killed_run_had_reserved_stays_spent(tmp_path: Path) -> None:
    for _ in range(2):
        with Progress(tmp_path / "progress.db") as progress:
            ledger, budget = RunLedger(progress=progress), run_budget("run", Limit(calls=2))
            reserved = await ledger.reserve(budget, Spend(calls=1), now_ns=0)
            assert not isinstance(reserved, ExceededLimit)  # it dies here: nobody settles
    with Progress(tmp_path / "progress.db") as progress:
        ledger = RunLedger(progress=progress)
        assert isinstance(await ledger.reserve(budget, Spend(calls=1), now_ns=0), ExceededLimit)
        (left,) = (await ledger.status(budget, now_ns=0)).left()
        assert (left.limit, left.spent, left.most) == ("run_calls", 2, 2)
