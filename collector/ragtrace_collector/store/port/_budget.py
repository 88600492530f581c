"""The spend ledger: every request to a judge is counted before it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ragtrace.judge.spend import Spend
from ragtrace_collector.budget import Budget, BudgetStatus, BudgetWindow, ExceededLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """An estimate that is counted already, in the windows of its time."""

    budget: Budget
    windows: tuple[BudgetWindow, ...]
    estimate: Spend


class BudgetStore(Protocol):
    """Keeps what was spent, by budget and window. Amounts are calls, tokens and billionths of a dollar.

    Each method is one transaction and sees all earlier ones, so that limits hold across workers and
    processes: what is counted in a window never exceeds a limit, but for one request that is larger than the
    whole limit and comes first. After a crash between ``reserve`` and ``settle``, the estimate stays counted
    until its window ends, because the actual cost is unknown.

    Windows are forgotten by number, never by age: a clock that is set forward and back finds what it spent.
    """

    async def reserve(
        self, budget: Budget, estimate: Spend, *, now_ns: int, share: float = 1.0
    ) -> Reservation | ExceededLimit:
        """Count a request that is about to be made in all windows of this moment, or in none.

        ``share`` is the share of each limit, from 0 to 1, that the request may use. Return the limit that
        forbids it, if one does.

        Raises:
            StoreUnavailable: it cannot be counted, so it must not be made.
        """
        ...

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        """Count what was spent instead of the estimate, in the windows in which that was counted.

        Raises:
            StoreUnavailable: the estimate stays counted.
        """
        ...

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        """Return what was spent in the current windows, reservations included.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...
