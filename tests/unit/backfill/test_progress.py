"""What a run keeps on disk: its turns, read a session at a time, and what it may spend."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backfill import Progress
from ragtrace.backfill.progress import RunLedger, run_budget
from ragtrace.budget import BudgetGuard, CostEstimator, ExceededLimit, Limit, OverBudget, Price, Spend
from ragtrace.errors import JudgeOverBudget
from ragtrace.model import Usage
from ragtrace.process import SystemClock
from tests.patience import PATIENCE_S

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
