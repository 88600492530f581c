"""The spend ledger in the store: one row a budget and window, changed before a request, corrected after."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from ragtrace.judge.spend import Spend
from ragtrace_collector.budget import Budget, BudgetStatus, BudgetWindow, ExceededLimit, Period
from ragtrace_collector.store.port import Reservation, StoreUnavailable
from ragtrace_collector.store.writer import GroupCommit

T = TypeVar("T")

BUDGET: Final = """
CREATE TABLE spent (
    purse TEXT NOT NULL, period TEXT NOT NULL, start_ns INTEGER NOT NULL,
    calls INTEGER NOT NULL, tokens INTEGER NOT NULL, usd_nano INTEGER NOT NULL,
    PRIMARY KEY (purse, period, start_ns)) WITHOUT ROWID;
"""
_KEPT: Final = {Period.MINUTE: 2 * 1440, Period.DAY: 400, Period.MONTH: 60}
"""Windows to keep, so that the spending is still known if the clock is set back."""


class SqliteBudget:
    """The [`BudgetStore`][ragtrace_collector.store.port.BudgetStore] of a SQLite store."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits

    async def reserve(
        self, budget: Budget, estimate: Spend, *, now_ns: int, share: float = 1.0
    ) -> Reservation | ExceededLimit:
        return await self._submit(lambda db: reserve(db, budget, estimate, now_ns=now_ns, share=share))

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        await self._submit(lambda db: settle(db, reservation, actual))

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        return await self._submit(lambda db: status(db, budget, now_ns=now_ns))

    async def _submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._commits.submit(work)
        except sqlite3.OperationalError as exc:
            raise StoreUnavailable(f"the budget cannot be kept: {exc}") from exc


def reserve(
    db: sqlite3.Connection, budget: Budget, estimate: Spend, *, now_ns: int, share: float = 1.0
) -> Reservation | ExceededLimit:
    """Count an estimate in all current windows, or in none of them."""
    spent = _spent(db, budget, now_ns)
    refusal = budget.refusal(spent, estimate, share=share)
    if refusal is not None:
        return refusal
    for window in spent:
        _add(db, budget, window, estimate)
    return Reservation(budget=budget, windows=tuple(spent), estimate=estimate)


def settle(db: sqlite3.Connection, reservation: Reservation, actual: Spend) -> None:
    """Correct an estimate in the windows in which it was counted."""
    for window in reservation.windows:
        _add(db, reservation.budget, window, actual - reservation.estimate)


def status(db: sqlite3.Connection, budget: Budget, *, now_ns: int) -> BudgetStatus:
    """Return what was spent in the windows of this moment."""
    return BudgetStatus(budget=budget, spent=_spent(db, budget, now_ns))


def _spent(db: sqlite3.Connection, budget: Budget, now_ns: int) -> Mapping[BudgetWindow, Spend]:
    return {window: _spent_in(db, budget, window) for window in budget.windows(now_ns)}


def _spent_in(db: sqlite3.Connection, budget: Budget, window: BudgetWindow) -> Spend:
    row = db.execute(
        "SELECT calls, tokens, usd_nano FROM spent WHERE purse = ? AND period = ? AND start_ns = ?",
        (budget.name, window.period, window.start_ns),
    ).fetchone()
    return Spend(calls=row[0], tokens=row[1], usd_nano=row[2]) if row else Spend()


def _add(db: sqlite3.Connection, budget: Budget, window: BudgetWindow, amount: Spend) -> None:
    key = (budget.name, window.period, window.start_ns)
    changed = db.execute(
        "UPDATE spent SET calls = calls + ?, tokens = tokens + ?, usd_nano = usd_nano + ?"
        " WHERE purse = ? AND period = ? AND start_ns = ?",
        (amount.calls, amount.tokens, amount.usd_nano, *key),
    )
    if not changed.rowcount:
        db.execute(
            "INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?)",
            (*key, amount.calls, amount.tokens, amount.usd_nano),
        )
        _forget(db, budget, window.period)


def _forget(db: sqlite3.Connection, budget: Budget, period: Period) -> None:
    """Delete the oldest windows by number. By age, a clock that is set forward would delete them all."""
    db.execute(
        "DELETE FROM spent WHERE purse = ?1 AND period = ?2 AND start_ns <= (SELECT start_ns FROM spent"
        " WHERE purse = ?1 AND period = ?2 ORDER BY start_ns DESC LIMIT 1 OFFSET ?3)",
        (budget.name, period, _KEPT[period]),
    )
