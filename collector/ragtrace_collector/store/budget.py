"""The spend ledger, a row a budget and window, and the drift check: a row a run, and a row a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
from ragtrace.budget.reserve import reservation
from ragtrace.drift import AnchorRun, SeenModel
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

        def work(db: Db) -> Reservation | ExceededLimit:
            now = status(db, budget, now_ns=now_ns)
            answer = reservation(now, estimate)
            if isinstance(answer, Reservation):
                for window, before in now.spent.items():
                    _add(db, budget, window, estimate)
                    if before == Spend():  # it begins
                        _forget(db, budget, window.period)
            return answer

        try:
            return await self._submit(work)
        except StoreUnavailable as exc:
            raise BudgetUnavailable(f"the judge is not asked: {exc}", usage=Usage()) from exc

    async def settle(self, reserved: Reservation, actual: Spend) -> None:
        """Count what was spent instead of the estimate, which stays counted if that fails."""

        def work(db: Db) -> None:
            for window in reserved.windows:
                _add(db, reserved.budget, window, actual - reserved.estimate)

        try:
            await self._submit(work)
        except StoreUnavailable as exc:
            log.error("the estimate of a request stays counted: %s", exc, extra=event("estimate_kept"))  # noqa: TRY400

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        """Return what was spent in the current windows.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        return await self._submit(lambda db: status(db, budget, now_ns=now_ns))

    async def _submit(self, work: Callable[[Db], T]) -> T:
        def locked(db: Db) -> T:
            lock_shared(db)
            return work(db)

        return await self._commits.submit(locked, is_last=True)


def status(db: Db, budget: Budget, *, now_ns: int) -> BudgetStatus:
    """Return what was spent in the windows of a moment; pending requests count by their estimates."""
    return BudgetStatus(
        budget=budget, spent={window: _spent(db, budget, window) for window in budget.windows(now_ns)}
    )


def _spent(db: Db, budget: Budget, window: BudgetWindow) -> Spend:
    row = db.execute(
        "SELECT calls, tokens, usd_nano FROM spent WHERE purse = ? AND period = ? AND start_ns = ?",
        (budget.name, window.period, window.start_ns),
    ).fetchone()
    return Spend(calls=row[0], tokens=row[1], usd_nano=row[2]) if row else Spend()


def _add(db: Db, budget: Budget, window: BudgetWindow, amount: Spend) -> None:
    db.execute(
        "INSERT INTO spent (purse, period, start_ns, calls, tokens, usd_nano) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (purse, period, start_ns) DO UPDATE SET calls = spent.calls + excluded.calls,"
        " tokens = spent.tokens + excluded.tokens, usd_nano = spent.usd_nano + excluded.usd_nano",
        (budget.name, window.period, window.start_ns, amount.calls, amount.tokens, amount.usd_nano),
    )


def _forget(db: Db, budget: Budget, period: Period) -> None:
    """Delete the oldest windows by number. By age, a clock that is set forward would delete them all."""
    db.execute(
        "DELETE FROM spent WHERE purse = ? AND period = ? AND start_ns <= (SELECT start_ns FROM spent"
        " WHERE purse = ? AND period = ? ORDER BY start_ns DESC LIMIT 1 OFFSET ?)",
        (budget.name, period, budget.name, period, KEPT_WINDOWS[period]),
    )


_MOST_MODELS: Final = 1_000
"""Of one requested model: an endpoint may make up a fingerprint for each reply."""


class DriftRuns:
    """Runs of the anchors, and which models answered. None of it is content.

    Each method is one transaction. All raise StoreUnavailable.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def claim(self, version: str, *, now_ns: int, every_ns: int) -> bool:
        """Say whether a run is due and nobody makes it; then it's this process's, until `end_claim`.

        It is due if the last run of the evaluator version began so long ago; a clock may go back.
        """

        def work(db: Db) -> bool:
            claimed = db.execute(
                "INSERT INTO anchor_claim (evaluator_version, owner) VALUES (?, ?)"
                " ON CONFLICT (evaluator_version) DO UPDATE SET owner = excluded.owner"
                " WHERE anchor_claim.owner IN (0, excluded.owner)",
                (version, db.writer),
            ).rowcount
            if not claimed:
                return False
            # now, because who had the claim until now may have added a run
            began = [run.began_ns for run in read_runs(db) if run.evaluator_version == version]
            is_due = not began or abs(now_ns - began[-1]) >= every_ns
            if not is_due:
                _end_claim(db, version)
            return is_due

        return await self._commits.submit(work)

    async def end_claim(self, version: str) -> None:
        """Let others make the next run, because this one was made, or failed."""
        await self._commits.submit(lambda db: _end_claim(db, version))

    async def add_run(self, run: AnchorRun) -> None:
        """Keep a run."""
        statement = "INSERT INTO anchor_run (began_ns, evaluator_version, run) VALUES (?, ?, ?)"
        values = (run.began_ns, run.evaluator_version, run.as_json())
        await self._commits.submit(lambda db: db.execute(statement, values).rowcount)

    async def runs(self) -> tuple[AnchorRun, ...]:
        """Return the runs since the last new baseline, the oldest first."""
        return await self._commits.submit(read_runs)

    async def begin_baseline(self) -> None:
        """Compare with none of the runs any more: the next complete one is the baseline."""
        await self._commits.submit(forget_runs)

    async def see_models(self, models: Sequence[SeenModel]) -> tuple[SeenModel, ...]:
        """Note who answered; return the changes: who is new where others answered before."""
        return await self._commits.submit(lambda db: _changes(db, models))

    async def seen_models(self) -> tuple[SeenModel, ...]:
        """Return all that ever answered, by requested model and time."""
        return await self._commits.submit(read_models)


def _end_claim(db: Db, version: str) -> None:
    db.execute(
        "UPDATE anchor_claim SET owner = 0 WHERE evaluator_version = ? AND owner = ?", (version, db.writer)
    )


def read_runs(db: Db) -> tuple[AnchorRun, ...]:
    """Return the kept runs, the oldest first."""
    return tuple(AnchorRun.of_json(row[0]) for row in db.execute("SELECT run FROM anchor_run ORDER BY id"))


def read_models(db: Db) -> tuple[SeenModel, ...]:
    """Return who answered, by requested model and time."""
    rows = db.execute(
        "SELECT requested, answered, fingerprint, first_ns, last_ns FROM judge_model"
        " ORDER BY requested, first_ns, answered, fingerprint"
    )
    names = ("requested", "answered", "fingerprint", "first_ns", "last_ns")
    return tuple(SeenModel(**dict(zip(names, row, strict=True))) for row in rows)


def forget_runs(db: Db) -> None:
    """Compare with none of the runs any more."""
    db.execute("DELETE FROM anchor_run")


def _changes(db: Db, models: Sequence[SeenModel]) -> tuple[SeenModel, ...]:
    first = {name for (name,) in db.execute("SELECT DISTINCT requested FROM judge_model")}
    new = [model for model in models if _is_new(db, model)]
    return tuple(model for model in new if model.requested in first)


def _is_new(db: Db, model: SeenModel) -> bool:
    """Note who answered; say whether it is new."""
    key = (model.requested, model.answered, model.fingerprint)
    known = db.execute(
        "UPDATE judge_model SET last_ns = CASE WHEN last_ns > ? THEN last_ns ELSE ? END"
        " WHERE requested = ? AND answered = ? AND fingerprint = ?",
        (model.last_ns, model.last_ns, *key),
    ).rowcount
    if known:
        return False
    query = "SELECT count(*) FROM judge_model WHERE requested = ?"
    (others,) = db.execute(query, (model.requested,)).fetchone()
    if others >= _MOST_MODELS:
        return False
    db.execute(
        "INSERT INTO judge_model (requested, answered, fingerprint, first_ns, last_ns)"
        " VALUES (?, ?, ?, ?, ?)",
        (*key, model.first_ns, model.last_ns),
    )
    return True
