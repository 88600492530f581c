"""The wall of the budget: every attempt to ask a judge is counted before it is made, or is not made."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from ragtrace.judge.spend import CostEstimator, RequestCost, ReservingSpender, Spend
from ragtrace.model import Usage
from ragtrace.ports import Clock
from ragtrace_collector.budget import Budget, BudgetStatus, BudgetStoreUnavailable, ExceededLimit, OverBudget
from ragtrace_collector.store.budget import BudgetStore, Reservation
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.telemetry.logs import event

__all__ = ["BudgetGuard"]

log = logging.getLogger("ragtrace.collector")

_STANDING_NS: Final = 1_000_000_000
"""How old what is told of the spending may be."""


@dataclass(slots=True, kw_only=True)
class BudgetGuard:
    """One purse, and everyone who spends from it."""

    purse: Budget
    book: BudgetStore
    clock: Clock
    share_to_sample: float = 1.0
    """The share of traffic with which the spending lasts, as it was found last."""
    _turnstile: ReservingSpender[Reservation] = field(init=False)
    _standing: BudgetStatus | None = None
    _standing_ns: int = 0

    def __post_init__(self) -> None:
        self._turnstile = ReservingSpender(book=_Page(purse=self.purse, book=self.book, clock=self.clock))

    def spending(
        self, tariff: CostEstimator, largest: Usage, *, share: float = 1.0
    ) -> AbstractAsyncContextManager[RequestCost]:
        """Count a request before it is made; its bill says afterwards what it did cost.

        What nobody knows (it timed out, or was interrupted) stays counted as it was estimated.

        Raises:
            OverBudget: a limit would be exceeded, even if all that is under way cost nothing.
            Uncounted: it cannot be counted, so it is not made.
        """
        return self._turnstile.spending(tariff, largest, share=share)

    async def standing(self) -> BudgetStatus:
        """Return what was spent in the windows of this moment, at most a second ago.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        now_ns = self.clock.now_ns()
        if self._standing is None or abs(now_ns - self._standing_ns) >= _STANDING_NS:
            self._standing = await self.book.standing(self.purse, now_ns=now_ns)
            self._standing_ns = now_ns
        return self._standing

    async def find_share(self) -> float:
        """Find the share of traffic, from 0 to 1, with which the spending lasts for day and month.

        Raises:
            StoreUnavailable: what was spent cannot be read.
        """
        self.share_to_sample = (await self.standing()).share_to_sample(self.clock.now_ns())
        return self.share_to_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The book of what was spent, opened at one purse."""

    purse: Budget
    book: BudgetStore
    clock: Clock

    async def reserve(self, estimate: Spend, *, share: float) -> Reservation:
        try:
            answer = await self.book.reserve(self.purse, estimate, now_ns=self.clock.now_ns(), share=share)
        except StoreUnavailable as exc:
            raise BudgetStoreUnavailable(f"the judge is not asked: {exc}", usage=Usage()) from exc
        if isinstance(answer, ExceededLimit):
            raise OverBudget(self.purse.name, answer)
        return answer

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        try:
            await self.book.settle(reservation, actual)
        except StoreUnavailable as exc:
            log.error("the estimate of a request stays counted: %s", exc, extra=event("estimate_kept"))  # noqa: TRY400
