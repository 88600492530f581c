"""The budget of one run, from beginning to end, including interruptions."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.backfill.progress import Progress
from ragtrace.budget import Limit, Spend
from ragtrace.errors import JudgeOverBudget


@dataclass(slots=True, kw_only=True)
class RunBudget:
    """Stores what a run spends in its progress file; a `ragtrace.budget.SpendLedger`.

    Unlike a collector's budget, it rejects every request that is larger than a whole limit.
    """

    progress: Progress
    run: str
    limit: Limit
    _spent: Spend | None = None

    async def reserve(self, estimate: Spend, *, share: float) -> Spend:
        """Reserve the estimate of a request.

        Raises:
            JudgeOverBudget: it may exceed a limit.
        """
        if self._spent is None:
            self._spent = self.progress.spent(self.run)
        if limit := self.limit.exceeded_by(self._spent + estimate, share=share):
            raise JudgeOverBudget(_told(limit, self.limit, self._spent, estimate))
        self._spent += estimate
        await self.progress.spend(self.run, estimate)
        return estimate

    async def settle(self, reservation: Spend, actual: Spend) -> None:
        """Replace the reserved estimate by the actual cost."""
        assert self._spent is not None  # something was reserved
        self._spent += actual - reservation
        await self.progress.spend(self.run, actual - reservation)


def _told(limit: str, limits: Limit, spent: Spend, estimate: Spend) -> str:
    """Describe what is spent of a limit, and what the next request may take."""
    most, before, wanted = (_amount(amount, limit) for amount in (limits, spent, estimate))
    unit = "" if limit == "usd" else f" {limit}"
    return f"{before} of {most}{unit} are spent, and the next request may take {wanted}"


def _amount(amount: Limit | Spend, limit: str) -> str:
    if limit == "usd":
        return f"${(amount.usd_nano or 0) / 1e9:,.4f}"
    return f"{(amount.calls if limit == 'calls' else amount.tokens) or 0:,}"
