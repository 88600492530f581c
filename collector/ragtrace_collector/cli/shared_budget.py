"""The budget that a back-fill shares with a collector, whose live answers go first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ragtrace.backfill.progress import pause
from ragtrace.budget import (
    Budget,
    BudgetGuard,
    CostEstimator,
    OverBudget,
    Prices,
    RequestCost,
    Spending,
    require_price,
)
from ragtrace.judge.layers import JudgeCall
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Clock
from ragtrace.process import SystemClock

if TYPE_CHECKING:
    from ragtrace_collector.config import StoreConfig
    from ragtrace_collector.store.database import Database

T = TypeVar("T")

_POLL_S: Final = 1.0
_LONGEST_TURN_S: Final = 60.0
"""A queue that never empties must not stop a back-fill for good: then an answer a minute is judged."""
_LONGEST_WINDOW_S: Final = 61.0
"""The end of a minute is waited for, the end of a day is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorBudget:
    """The budget for back-fill in a collector's configuration."""

    store: StoreConfig
    budget: Budget

    def check(self, who: JudgeIdentity, prices: Prices) -> None:
        """Make sure that a judge can be counted.

        Raises:
            ConfigError: the budget limits money, and what the judge costs is not known.
        """
        require_price(
            self.budget,
            who,
            prices,
            setting="the collector's `budget.backfill`",
            remedy="name it in a file for --set judge.prices=FILE",
        )

    @asynccontextmanager
    async def opened(self, stop: asyncio.Event) -> AsyncIterator[OpenCollectorBudget]:
        """Open the budget, and watch the queue.

        Raises:
            ConfigError: the store cannot be used.
            ReadError: there is none.
        """
        from ragtrace_collector.store.budget import BudgetRows
        from ragtrace_collector.store.open import database_of
        from ragtrace_collector.store.store import open_tables

        clock = SystemClock()
        database = database_of(self.store)
        opened_budget = OpenCollectorBudget(database=database, stop=stop, clock=clock)
        await opened_budget.count()
        async with AsyncExitStack() as opened:
            if self.budget.limits:
                ledger = BudgetRows(await opened.enter_async_context(open_tables(database)))
                guard = BudgetGuard(budget=self.budget, ledger=ledger, clock=clock)
                opened_budget.spender = _NextMinute(guard=guard, stop=stop, clock=clock).spending
            yield opened_budget


def read_shared_budget(config: Path) -> CollectorBudget:
    """Read the store and the budget for back-fill that a collector's configuration names.

    Raises:
        ConfigError: it cannot be read.
    """
    from ragtrace_collector.config import load_config
    from ragtrace_collector.judge import budget_of

    read = load_config(config, needs_secrets=False)
    return CollectorBudget(store=read.store, budget=budget_of("backfill", read.budget.backfill))


@dataclass(slots=True, kw_only=True)
class OpenCollectorBudget:
    """Counts against the collector's budget, and waits while live answers are in its queue."""

    database: Database
    """Where its queue is."""
    stop: asyncio.Event
    clock: Clock
    spender: Spending | None = None
    """The collector's budget for back-fill; ``None`` if it has no limits."""
    waiting_for: int = 0
    """Live answers that go first at this moment."""
    _one_by_one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """After the longest turn one answer passes, not as many as are judged at once."""
    _looked_ns: int = 0

    async def turn(self) -> None:
        """Wait until no live answer is due, a minute is over, or the run is stopped."""
        async with self._one_by_one:
            if self.clock.now_ns() - self._looked_ns < _POLL_S * 1e9:
                return
            waited_s = 0.0
            while await self.count() and waited_s < _LONGEST_TURN_S and not self.stop.is_set():
                await pause(_POLL_S, self.stop)
                waited_s += _POLL_S
            self._looked_ns = 0 if self.waiting_for else self.clock.now_ns()
            self.waiting_for = 0

    async def count(self) -> int:
        """Count the live answers that are due or being judged.

        Raises:
            ReadError: the store cannot be read.
        """
        from ragtrace_collector.store.ledger import count_due

        self.waiting_for = await asyncio.to_thread(count_due, self.database, now_ns=self.clock.now_ns())
        return self.waiting_for


@dataclass(frozen=True, slots=True, kw_only=True)
class _NextMinute:
    """Waits for the next minute of a budget."""

    guard: BudgetGuard
    stop: asyncio.Event
    clock: Clock

    @asynccontextmanager
    async def spending(self, cost_estimator: CostEstimator, largest: Usage) -> AsyncIterator[RequestCost]:
        async with AsyncExitStack() as counted:
            request_cost = await self.entered(counted, lambda: self.guard.spending(cost_estimator, largest))
            waiting = _WaitingCost(request_cost=request_cost, minute=self)
            try:
                yield waiting
            finally:
                request_cost.usage = waiting.usage

    async def entered(
        self, counted: AsyncExitStack, enter: Callable[[], AbstractAsyncContextManager[T]]
    ) -> T:
        """Enter what counts a request, in the next minute if need be.

        Raises:
            OverBudget: a longer window has no room.
        """
        while True:
            try:
                return await counted.enter_async_context(enter())
            except OverBudget as full:
                wait_s = (full.exceeded.until_ns - self.clock.now_ns()) / 1e9
                if wait_s > _LONGEST_WINDOW_S or self.stop.is_set():
                    raise
                await pause(max(0.0, wait_s), self.stop)


@dataclass(slots=True, kw_only=True)
class _WaitingCost(RequestCost):
    """Lets further requests of a call wait for the next minute too."""

    request_cost: RequestCost
    minute: _NextMinute

    @asynccontextmanager
    async def request(self, call: JudgeCall) -> AsyncIterator[None]:
        async with AsyncExitStack() as counted:
            await self.minute.entered(counted, lambda: self.request_cost.request(call))
            yield
