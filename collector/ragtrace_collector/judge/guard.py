"""The guards in front of every request to a judge: the budget, then the breaker."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ragtrace.budget import (
    Budget,
    BudgetGuard,
    CostEstimator,
    ExceededLimit,
    Limit,
    LimitUsage,
    OverBudget,
    Period,
    Prices,
    RequestCost,
    SpendLedger,
    budgeted,
    budgeted_embedder,
    load_prices,
    require_price,
)
from ragtrace.judge import AdaptiveLimiter, limiter_of
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Clock, Embedder, Judge
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.config.budget import BudgetPeriodsConfig, limit_of
from ragtrace_collector.judge.breaker import Breaker, BreakerState
from ragtrace_collector.ledger import State
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_MOST_ANSWERED_BY: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """The judge is unavailable for a while."""

    outcome: str
    """The outcome of an answer that cannot wait so long."""
    until_ns: int


@dataclass(slots=True, kw_only=True)
class JudgeGuard:
    """Guards one judge or embedder."""

    name: str
    """``judge``, ``second`` or ``embedder``."""
    breaker: Breaker
    budget_guard: BudgetGuard | None
    limiter: AdaptiveLimiter | None = None
    """How many requests may run at once."""
    doubts: int = 0
    """Responses with an impossible token usage."""
    requested: str = ""
    """``provider:model``, as configured."""
    answered_by: set[tuple[str, str]] = field(default_factory=set)
    """The models and fingerprints that replies named since they were last noted."""
    _refusal: ExceededLimit | None = None

    @property
    def refusal(self) -> ExceededLimit | None:
        """The last limit that the budget enforced, while its window lasts."""
        if self._refusal is not None and self.breaker.clock.now_ns() >= self._refusal.until_ns:
            self._refusal = None
            log.warning("%s: the budget has room again", self.name, extra=event("budget_open", who=self.name))
        return self._refusal

    def closed(self) -> Unavailable | None:
        """Return until when no request passes, if so."""
        outcome = self.stopped()
        if outcome is None:
            return None
        if self.refusal is not None:
            return Unavailable(outcome=outcome, until_ns=self.refusal.until_ns)
        is_open = self.breaker.state is BreakerState.OPEN
        return Unavailable(outcome=outcome, until_ns=self.breaker.probe_ns) if is_open else None

    def stopped(self) -> str | None:
        """Return why nothing is judged, as an outcome, until a response shows that the judge is back."""
        if self.refusal is not None:
            return State.OVER_BUDGET.because(self.refusal.limit)
        trouble = self.breaker.trouble
        return State.FAILED.because(trouble.error_type) if trouble is not None else None

    @property
    def state(self) -> str:
        """``over_budget``, or the state of the breaker."""
        return OverBudget.error_type if self.refusal else self.breaker.state.value

    @property
    def trouble(self) -> str:
        """Why nothing is judged, for messages; empty if answers are."""
        return f"{self.refusal.limit} is spent" if self.refusal else self.breaker.reason

    @asynccontextmanager
    async def spending(self, cost_estimator: CostEstimator, largest: Usage) -> AsyncIterator[RequestCost]:
        """Let a request pass that costs at most so much, and update the guard from its result.

        It implements `ragtrace.budget.Spender`.

        Raises:
            JudgeError: the request may not be made now.
        """
        async with self._reserved(cost_estimator, largest) as request_cost, self.breaker.passage():
            try:
                yield request_cost
            finally:
                self.doubts += request_cost.doubts
                if len(self.answered_by) < _MOST_ANSWERED_BY:
                    self.answered_by |= request_cost.answered_by

    @asynccontextmanager
    async def _reserved(self, cost_estimator: CostEstimator, largest: Usage) -> AsyncIterator[RequestCost]:
        if self.budget_guard is None:
            yield RequestCost()
            return
        try:
            async with self.budget_guard.spending(cost_estimator, largest) as request_cost:
                yield request_cost
        except OverBudget as spent:
            if self.refusal is None:
                log.warning("%s: %s", self.name, spent, extra=event("budget_spent", who=self.name))
            self._refusal = spent.exceeded
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeGuards:
    """All guards, sharing one budget."""

    clock: Clock
    probe_delays_ns: tuple[int, ...]
    prices: Prices
    budget: Budget
    budget_guard: BudgetGuard | None = None
    """``None`` if nothing is limited, or no judge is going to be asked."""
    by_name: dict[str, JudgeGuard] = field(default_factory=dict)
    """``judge``, ``second`` and ``embedder``, as far as they are configured."""

    def judge(self, name: str, *, key_place: str = "") -> Callable[[Judge], Judge]:
        """Return what puts a judge behind a guard of this name.

        It raises ConfigError if money is limited, and the judge's price is not known.
        """

        def around(judge: Judge) -> Judge:
            guard = self._before(name, judge.identity, key_place)
            guard.limiter = limiter_of(judge)
            return budgeted(judge, (guard,), self.prices.price_of(judge.identity))

        return around

    def embedder(self, name: str, *, key_place: str = "") -> Callable[[Embedder], Embedder]:
        """Return a function that puts an embedder behind a guard of this name."""

        def around(embedder: Embedder) -> Embedder:
            guard = self._before(name, embedder.identity, key_place)
            return budgeted_embedder(embedder, (guard,), self.prices.price_of(embedder.identity))

        return around

    async def left(self) -> tuple[LimitUsage, ...]:
        """Return what is spent and left of the budget.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        return (await self.budget_guard.status()).left() if self.budget_guard else ()

    def _before(self, name: str, who: JudgeIdentity, key_place: str) -> JudgeGuard:
        require_price(
            self.budget,
            who,
            self.prices,
            setting="`budget`",
            remedy="name it in a file for `judge.prices`, or limit `tokens` instead",
        )
        self.by_name[name] = JudgeGuard(
            name=name,
            requested=f"{who.provider}:{who.model}",
            breaker=Breaker(
                who=name, clock=self.clock, probe_delays_ns=self.probe_delays_ns, key_place=key_place
            ),
            budget_guard=None if who.computes else self.budget_guard,
        )
        return self.by_name[name]


def guards_of(config: CollectorConfig, *, clock: Clock, spend_ledger: SpendLedger | None) -> JudgeGuards:
    """Return the guards of live judging; without a spend ledger, none of them limits spending.

    Raises:
        ConfigError: the table of prices cannot be read.
    """
    budget = budget_of("live", config.budget.live)
    return JudgeGuards(
        clock=clock,
        probe_delays_ns=tuple(int(delay.total_seconds() * 1e9) for delay in config.evaluate.probe_delays),
        prices=load_prices(config.judge.prices),
        budget=budget,
        budget_guard=BudgetGuard(budget=budget, ledger=spend_ledger, clock=clock)
        if spend_ledger and budget.limits
        else None,
    )


def budget_of(name: str, config: BudgetPeriodsConfig) -> Budget:
    """Return the configured budget, without the periods that have no limit."""
    by_period = {Period.MINUTE: config.minute, Period.DAY: config.day, Period.MONTH: config.month}
    limits = {period: limit_of(given) for period, given in by_period.items()}
    return Budget(name=name, limits={period: limit for period, limit in limits.items() if limit != Limit()})
