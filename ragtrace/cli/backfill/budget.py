"""The budget of a run: its own limits, and that of a collector on the same machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from ragtrace.backfill import ResumableRun
from ragtrace.backfill.run_ledger import RunLedger, run_budget
from ragtrace.budget import NANO, BudgetGuard, Limit, Prices, Spender, budgeted, require_price
from ragtrace.cli.backfill.options import BudgetOptions
from ragtrace.clock import SystemClock
from ragtrace.judge import spent_by
from ragtrace.model import JudgeIdentity
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Judge

if TYPE_CHECKING:
    from ragtrace_collector.cli.shared_budget import CollectorBudget, OpenCollectorBudget

OVER_BUDGET: Final = 3
"""The exit code of a run whose budget is spent."""


@dataclass(slots=True, kw_only=True)
class BackfillBudget:
    """What a run may spend: its own limits, and the shared budget of a collector."""

    limit: Limit = field(default_factory=Limit)
    shared: CollectorBudget | None = None
    _opened: OpenCollectorBudget | None = None
    _spenders: list[Spender] = field(default_factory=list)

    @classmethod
    def of(cls, options: BudgetOptions) -> Self:
        """Return the budget that options name."""
        limit = Limit.of(calls=options.max_calls, tokens=options.max_tokens, usd=options.max_cost)
        return cls(limit=limit, shared=options.shared)

    def around(self, prices: Prices) -> Callable[[Judge], Judge]:
        """Return a layer that counts every request to a judge before it is made, once a run is open.

        It raises ConfigError if money is limited, and what the judge costs is not known.
        """

        def around(judge: Judge) -> Judge:
            self._check(judge.identity, prices)
            if judge.identity.computes:
                return judge  # it costs nothing
            return budgeted(judge, self._spenders, prices.price_of(judge.identity))

        return around

    @asynccontextmanager
    async def opened(self, run: ResumableRun) -> AsyncIterator[ResumableRun]:
        """Open the budgets of a run, and let live answers go first.

        Raises:
            ConfigError: the collector's store cannot be used.
            ReadError: there is no such store.
        """
        if self.limit != Limit():
            budget, ledger = run_budget(run.name, self.limit), RunLedger(progress=run.progress)
            self._spenders.append(BudgetGuard(budget=budget, ledger=ledger, clock=SystemClock()))
        if self.shared is None:
            yield run
            return
        async with self.shared.opened(run.stop) as self._opened:
            if self._opened.spender is not None:
                self._spenders.append(self._opened.spender)
            yield replace(run, turn=self._opened.turn)

    @property
    def waiting_for(self) -> int:
        """Live answers that go first at this moment."""
        return self._opened.waiting_for if self._opened else 0

    def told(self, evaluator: Evaluator) -> str:
        """Say what the judges were asked so far, in dollars if that is known; nothing if it costs nothing."""
        asked = [(judge.identity, spent_by(judge)) for judge in evaluator.judges]
        tokens = sum(spent.input_tokens + spent.output_tokens for _, spent in asked)
        costs = [evaluator.prices.cost_usd(spent, who) for who, spent in asked]
        if not tokens:
            return ""
        if None in costs:
            return f"{tokens:,} tokens"
        most = f" of ${self.limit.usd_nano / NANO:,.2f}" if self.limit.usd_nano else ""
        return f"${sum(filter(None, costs)):,.2f}{most}"

    def _check(self, who: JudgeIdentity, prices: Prices) -> None:
        require_price(
            run_budget("", self.limit),
            who,
            prices,
            setting="--max-cost",
            remedy=(
                "name it in a file for --prices (at 0 for a model of your own), or give --max-tokens instead"
            ),
        )
        if self.shared is not None:
            self.shared.check(who, prices)
