"""The spend ledger in the store: one row a budget and window, changed before a request, corrected after."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from ragtrace.budget import (
    Budget,
    BudgetStatus,
    BudgetUnavailable,
    BudgetWindow,
    ExceededLimit,
    Period,
    Reservation,
    Spend,
)
from ragtrace.budget.reserve import reserve, settle, status
from ragtrace.model import Usage
from ragtrace.sql import Db
from ragtrace_collector.store.database import Commits, lock_shared
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

T = TypeVar("T")

KEPT_WINDOWS: Final = {Period.MINUTE: 2 * 1440, Period.DAY: 400, Period.MONTH: 60}
"""Windows to keep, so that the spending is still known if the clock is set back."""


class BudgetRows:
    """The `ragtrace.budget.SpendLedger` of a store."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def reserve(self, budget: Budget, estimate: Spend, *, now_ns: int) -> Reservation | ExceededLimit:
        """Count a request that is about to be made, or return the limit that forbids it.

        Raises:
            BudgetUnavailable: it cannot be counted, so it must not be made.
        """
        try:
            return await self._submit(lambda table: reserve(table, budget, estimate, now_ns=now_ns))
        except StoreUnavailable as exc:
            raise BudgetUnavailable(f"the judge is not asked: {exc}", usage=Usage()) from exc

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        """Count what was spent instead of the estimate, which stays counted if that fails."""
        try:
            await self._submit(lambda table: settle(table, reservation, actual))
        except StoreUnavailable as exc:
            log.error("the estimate of a request stays counted: %s", exc, extra=event("estimate_kept"))  # noqa: TRY400

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        """Return what was spent in the current windows.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        return await self._submit(lambda table: status(table, budget, now_ns=now_ns))

    async def _submit(self, work: Callable[[SpentRows], T]) -> T:
        def locked(db: Db) -> T:
            lock_shared(db)
            return work(SpentRows(db))

        return await self._commits.submit(locked, is_last=True)


class SpentRows:
    """The rows of the store that say what was spent; a `ragtrace.budget.SpendTable`."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._missing: set[BudgetWindow] = set()
        """Windows without a row."""

    def spent(self, budget: Budget, window: BudgetWindow) -> Spend:
        """Return what was spent; pending requests count by their estimates."""
        row = self._db.execute(
            "SELECT calls, tokens, usd_nano FROM spent WHERE purse = ? AND period = ? AND start_ns = ?",
            (budget.name, window.period, window.start_ns),
        ).fetchone()
        if row is None:
            self._missing.add(window)
        return Spend(calls=row[0], tokens=row[1], usd_nano=row[2]) if row else Spend()

    def add(self, budget: Budget, window: BudgetWindow, amount: Spend) -> None:
        """Add to what was spent; a negative amount corrects an estimate."""
        self._db.execute(
            "INSERT INTO spent (purse, period, start_ns, calls, tokens, usd_nano) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (purse, period, start_ns) DO UPDATE SET calls = spent.calls + excluded.calls,"
            " tokens = spent.tokens + excluded.tokens, usd_nano = spent.usd_nano + excluded.usd_nano",
            (budget.name, window.period, window.start_ns, amount.calls, amount.tokens, amount.usd_nano),
        )
        if window in self._missing:
            self._forget(budget, window.period)

    def _forget(self, budget: Budget, period: Period) -> None:
        """Delete the oldest windows by number. By age, a clock that is set forward would delete them all."""
        self._db.execute(
            "DELETE FROM spent WHERE purse = ? AND period = ? AND start_ns <= (SELECT start_ns FROM spent"
            " WHERE purse = ? AND period = ? ORDER BY start_ns DESC LIMIT 1 OFFSET ?)",
            (budget.name, period, budget.name, period, KEPT_WINDOWS[period]),
        )
