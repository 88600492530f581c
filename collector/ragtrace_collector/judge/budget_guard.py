"""The budget guard: every request to a judge is counted before it is made, or is not made."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from ragtrace.judge.spend import CostEstimator, RequestCost, ReservingSpender, Spend
from ragtrace.model import Usage
from ragtrace.ports import Clock
from ragtrace_collector.budget import Budget, BudgetStatus, BudgetStoreUnavailable, ExceededLimit, OverBudget
from ragtrace_collector.store.port import BudgetStore, Reservation, StoreUnavailable
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_STATUS_NS: Final = 1_000_000_000
"""How old a budget status may be."""


@dataclass(slots=True, kw_only=True)
class BudgetGuard:
    """Guards one budget, shared by all that spend from it."""

    budget: Budget
    spend_ledger: BudgetStore
    clock: Clock
    share_to_sample: float = 1.0
    """The share of traffic with which the budget lasts, as last computed."""
    _spender: ReservingSpender[Reservation] = field(init=False)
    _status: BudgetStatus | None = None
    _status_ns: int = 0

    def __post_init__(self) -> None:
        self._spender = ReservingSpender(
            spend_ledger=_Page(budget=self.budget, spend_ledger=self.spend_ledger, clock=self.clock)
        )

    def spending(
        self, cost_estimator: CostEstimator, largest: Usage, *, share: float = 1.0
    ) -> AbstractAsyncContextManager[RequestCost]:
        """Count a request before it is made, and correct the count afterwards by its actual cost.

        If the cost is unknown (a timeout or an interruption), the estimate stays counted.

        Raises:
            OverBudget: a limit would be exceeded, even if all requests under way cost nothing.
            BudgetStoreUnavailable: it cannot be counted, so it is not made.
        """
        return self._spender.spending(cost_estimator, largest, share=share)

    async def status(self) -> BudgetStatus:
        """Return what was spent in the current windows, at most a second old.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        now_ns = self.clock.now_ns()
        if self._status is None or abs(now_ns - self._status_ns) >= _STATUS_NS:
            self._status = await self.spend_ledger.status(self.budget, now_ns=now_ns)
            self._status_ns = now_ns
        return self._status

    async def find_share(self) -> float:
        """Compute the share of traffic, from 0 to 1, with which the budget lasts for day and month.

        Raises:
            StoreUnavailable: what was spent cannot be read.
        """
        self.share_to_sample = (await self.status()).share_to_sample(self.clock.now_ns())
        return self.share_to_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The spend ledger of one budget."""

    budget: Budget
    spend_ledger: BudgetStore
    clock: Clock

    async def reserve(self, estimate: Spend, *, share: float) -> Reservation:
        try:
            answer = await self.spend_ledger.reserve(
                self.budget, estimate, now_ns=self.clock.now_ns(), share=share
            )
        except StoreUnavailable as exc:
            raise BudgetStoreUnavailable(f"the judge is not asked: {exc}", usage=Usage()) from exc
        if isinstance(answer, ExceededLimit):
            raise OverBudget(self.budget.name, answer)
        return answer

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        try:
            await self.spend_ledger.settle(reservation, actual)
        except StoreUnavailable as exc:
            log.error("the estimate of a request stays counted: %s", exc, extra=event("estimate_kept"))  # noqa: TRY400
