"""The spend ledger of a run: what it spends from beginning to end, including interruptions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragtrace.backfill.progress import Progress
from ragtrace.budget import (
    Budget,
    BudgetStatus,
    BudgetWindow,
    ExceededLimit,
    Limit,
    Period,
    Reservation,
    Spend,
)
from ragtrace.budget.reserve import reserve, settle, status


def run_budget(run: str, limit: Limit) -> Budget:
    """Return the budget of one run."""
    return Budget(name=run, limits={Period.RUN: limit})


@dataclass(slots=True, kw_only=True)
class RunLedger:
    """Keeps what runs spend in their progress file; a `ragtrace.budget.SpendLedger`.

    One process uses it at a time, so it decides in memory, and writes before a request is made.
    """

    progress: Progress
    _spent: dict[str, Spend] = field(default_factory=dict)

    async def reserve(
        self, budget: Budget, estimate: Spend, *, now_ns: int, share: float = 1.0
    ) -> Reservation | ExceededLimit:
        """Count a request that is about to be made, or return the limit that forbids it."""
        answer = reserve(self, budget, estimate, now_ns=now_ns, share=share)
        if isinstance(answer, Reservation):
            await self.progress.spend(budget.name, estimate)
        return answer

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        """Count what was spent instead of the estimate."""
        settle(self, reservation, actual)
        await self.progress.spend(reservation.budget.name, actual - reservation.estimate)

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        """Return what the run has spent."""
        return status(self, budget, now_ns=now_ns)

    def spent(self, budget: Budget, window: BudgetWindow) -> Spend:
        """Return what the run has spent; implements `ragtrace.budget.SpendTable`."""
        if budget.name not in self._spent:
            self._spent[budget.name] = self.progress.spent(budget.name)
        return self._spent[budget.name]

    def add(self, budget: Budget, window: BudgetWindow, amount: Spend) -> None:
        """Add to what the run has spent; implements `ragtrace.budget.SpendTable`."""
        self._spent[budget.name] = self.spent(budget, window) + amount
