"""The sampling state in the store: counts for adaptive rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ragtrace.model import Sample, Screening
from ragtrace.sql import Db, Rows
from ragtrace_collector.sampling import (
    LIMIT,
    EarlierDecision,
    Place,
    SamplingChanges,
    WindowRow,
)
from ragtrace_collector.store.database import Commits, lock_shared
from ragtrace_collector.store.records import Job

_THIS: Final = "trace_id = ? AND span_id = ?"
_KEPT_NS: Final = 2 * 3600 * 10**9
"""Of windows of an hour, the current one and the last."""
WINDOW: Final = "period, start_ns, tenant, seen, demand, floor, kept"


class SamplingState:
    """Counts for adaptive rates, and earlier decisions.

    Each method is one transaction. All raise StoreUnavailable: then nothing has changed.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def load(self) -> tuple[WindowRow, ...]:
        """Return this process's counts of the last windows, in any order."""

        def work(db: Db) -> tuple[WindowRow, ...]:
            if db.writer:  # what writers left that are gone is the first one's to come
                move_windows(db, 0, db.writer)
            query = f"SELECT {WINDOW} FROM sample_window WHERE writer = ?"
            return tuple(WindowRow(*row) for row in db.execute(query, (db.writer,)))

        return await self._commits.submit(work)

    async def sums(self, *, now_ns: int) -> tuple[WindowRow, ...]:
        """Return the counts of the last windows over all processes, in any order, and forget older ones."""

        def work(db: Db) -> list[tuple[Any, ...]]:
            db.execute("DELETE FROM sample_window WHERE start_ns < ?", (now_ns - _KEPT_NS,))
            return db.execute(
                "SELECT period, start_ns, tenant, sum(seen), sum(demand), sum(floor), sum(kept)"
                " FROM sample_window GROUP BY period, start_ns, tenant"
            ).fetchall()

        return tuple(WindowRow(*row) for row in await self._commits.submit(work))

    async def statuses(self, trace_id: str) -> Mapping[str, EarlierDecision]:
        """Return the earlier decisions about the answers of a trace, by span id; superseded ones are none."""

        def work(db: Db) -> Mapping[str, EarlierDecision]:
            rows = db.execute(
                f"SELECT span_id, outcome, {CHOSEN} FROM job WHERE trace_id = ? AND outcome != 'superseded'",
                (trace_id,),
            )
            return {
                span_id: EarlierDecision(outcome, sample_in(*sample)) for span_id, outcome, *sample in rows
            }

        return await self._commits.submit(work)

    async def save(self, changes: SamplingChanges) -> tuple[Place, ...]:
        """Store what the decisions changed; return the places beyond a limit, which the answers don't have.

        A row replaces that of its period, window and tenant.
        """

        def work(db: Db) -> tuple[Place, ...]:
            if changes.places:
                lock_shared(db)
            _put_windows(db, changes.windows)
            return tuple(_beyond_limits(db, changes.places)) if changes.places and db.writer else ()

        # counts are the newest: with or without places, they are written in the order in which they were made
        return await self._commits.submit(work, is_last=bool(changes.windows))


def select_again(db: Db, job: Job, *, now_ns: int) -> Rows:
    """Queue an answer that was sampled out; it changes no row if it was not."""
    return db.execute(
        "UPDATE job SET rule = ?, rate = ?, probability = ?, suspicion = ?, screened = ?,"
        " state = 'queued', seen_ns = ?, due_ns = ?,"
        f" ended_ns = NULL, outcome = '' WHERE {_THIS} AND outcome = 'sampled_out'",
        (*chosen(job.sample), now_ns, now_ns, job.trace_id, job.span_id),
    )


CHOSEN: Final = "rule, rate, probability, suspicion, screened"
"""The columns of a sample."""
CHOSEN_COLUMNS: Final = 5


def chosen(sample: Sample | None) -> tuple[str, float, float, float | None, float]:
    """Return the columns of a sample. Zero means no probability: no answer is kept with probability zero."""
    if sample is None:
        return ("", 0.0, 0.0, None, 0.0)
    screening = sample.screening
    screened = (screening.suspicion, screening.probability) if screening else (None, 0.0)
    return (sample.rule, sample.rate, sample.probability or 0.0, *screened)


def sample_in(rule: str, rate: float, probability: float, suspicion: float | None, screened: float) -> Sample:
    """Return the sample that `chosen` wrote."""
    return Sample(
        rule=rule,
        rate=rate,
        probability=probability or None,
        screening=None if suspicion is None else Screening(suspicion, screened),
    )


def _put_windows(db: Db, rows: Sequence[WindowRow]) -> None:
    db.executemany(
        f"INSERT INTO sample_window (writer, {WINDOW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (writer, period, start_ns, tenant) DO UPDATE SET seen = excluded.seen,"
        " demand = excluded.demand, floor = excluded.floor, kept = excluded.kept",
        [(db.writer, *row) for row in rows],
    )


def move_windows(db: Db, old: int, new: int) -> None:
    """Add the counts of a writer to those of another one."""
    db.execute(
        f"INSERT INTO sample_window (writer, {WINDOW}) SELECT ?, {WINDOW} FROM sample_window WHERE writer = ?"
        " ON CONFLICT (writer, period, start_ns, tenant) DO UPDATE SET seen = sample_window.seen +"
        " excluded.seen, demand = sample_window.demand + excluded.demand, floor = sample_window.floor +"
        " excluded.floor, kept = sample_window.kept + excluded.kept",
        (new, old),
    )
    db.execute("DELETE FROM sample_window WHERE writer = ?", (old,))


def _beyond_limits(db: Db, places: Sequence[Place]) -> Iterator[Place]:
    """Yield the places that are too many by the counts of all writers, and take them out of this one's."""
    query = "SELECT tenant, sum(kept) FROM sample_window WHERE period = ? AND start_ns = ? GROUP BY tenant"
    kept_by_window = {
        start_ns: Counter(dict(db.execute(query, (LIMIT, start_ns)).fetchall()))
        for start_ns in {place.start_ns for place in places}
    }
    for place in reversed(places):
        kept = kept_by_window[place.start_ns]
        is_full = place.answers is not None and kept.total() > place.answers
        if is_full or (place.per_tenant is not None and kept[place.tenant] > place.per_tenant):
            kept[place.tenant] -= 1
            db.execute(
                "UPDATE sample_window SET kept = kept - 1"
                " WHERE writer = ? AND period = ? AND start_ns = ? AND tenant = ?",
                (db.writer, LIMIT, place.start_ns, place.tenant),
            )
            yield place
