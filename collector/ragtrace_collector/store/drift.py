"""The tables of the drift check: a row a run of the anchors, and a row a model that answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.drift import AnchorRun, SeenModel
from ragtrace.sql import Db
from ragtrace_collector.store.database import Commits

_MOST_RUNS: Final = 2_000
"""More than five years of days. The first ones, which are the baseline, stay."""
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
        await self._commits.submit(lambda db: _add_run(db, run))

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
    return tuple(
        AnchorRun.of_json(row[0])
        for row in db.execute("SELECT run FROM anchor_run WHERE is_past = 0 ORDER BY id")
    )


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
    db.execute("UPDATE anchor_run SET is_past = 1")


def _add_run(db: Db, run: AnchorRun) -> None:
    db.execute(
        "INSERT INTO anchor_run (began_ns, evaluator_version, run) VALUES (?, ?, ?)",
        (run.began_ns, run.evaluator_version, run.as_json()),
    )
    (number,) = db.execute("SELECT count(*) FROM anchor_run").fetchone()
    if number <= _MOST_RUNS:
        return
    others = "SELECT id FROM anchor_run WHERE evaluator_version != ? ORDER BY id LIMIT 1"
    query = f"DELETE FROM anchor_run WHERE id = ({others})"
    if not db.execute(query, (run.evaluator_version,)).rowcount:  # of this one, from behind the baseline
        db.execute(
            "DELETE FROM anchor_run WHERE id = (SELECT id FROM anchor_run ORDER BY id LIMIT 1 OFFSET 20)"
        )


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
