"""The sampling state in the store: counts for adaptive rates, low answers, and answers related to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ragtrace.traces.attach import Sample, Screening
from ragtrace_collector.sampling.follow_up import LowAnswer
from ragtrace_collector.sampling.sampler import EarlierDecision, LeftOutAnswer, SamplingChanges
from ragtrace_collector.sampling.windows import UsefulWindows, WindowRow
from ragtrace_collector.store.port import Job, RelatedAnswer, StoreUnavailable
from ragtrace_collector.store.writer import GroupCommit

T = TypeVar("T")

SAMPLING: Final = """
CREATE TABLE sample_window (   -- counts of the last windows; adaptive rates are computed from them
    period TEXT NOT NULL, start_ns INTEGER NOT NULL, tenant TEXT NOT NULL,
    seen INTEGER NOT NULL, demand REAL NOT NULL, floor REAL NOT NULL, kept INTEGER NOT NULL,
    PRIMARY KEY (period, start_ns, tenant)) WITHOUT ROWID;
CREATE TABLE low_answer (      -- whose neighbours are kept
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, keys TEXT NOT NULL,   -- digests
    remaining INTEGER NOT NULL, until_ns INTEGER NOT NULL,
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
CREATE TABLE lingering (       -- answers that were sampled out, by what neighbours have in common
    key TEXT NOT NULL, seen_ns INTEGER NOT NULL, trace_id TEXT NOT NULL, span_id TEXT NOT NULL,
    PRIMARY KEY (key, seen_ns, trace_id, span_id)) WITHOUT ROWID;
CREATE INDEX lingering_answer ON lingering (trace_id, span_id);
CREATE TRIGGER lingering_forgotten AFTER DELETE ON trace BEGIN
    DELETE FROM lingering WHERE trace_id = OLD.trace_id;
END;
"""

SCREENING: Final = """
ALTER TABLE job ADD COLUMN suspicion REAL;   -- by the screen, before anyone judged; NULL if nobody asked
ALTER TABLE job ADD COLUMN screened REAL NOT NULL DEFAULT 0;   -- with which probability it was screened
"""

_THIS: Final = "trace_id = ? AND span_id = ?"


class SqliteSampling:
    """The [`SamplingStore`][ragtrace_collector.store.port.SamplingStore] of a SQLite store."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits

    async def load(self, *, now_ns: int) -> tuple[tuple[WindowRow, ...], tuple[LowAnswer, ...]]:
        def work(db: sqlite3.Connection) -> tuple[tuple[WindowRow, ...], tuple[LowAnswer, ...]]:
            windows = tuple(WindowRow(*row) for row in db.execute("SELECT * FROM sample_window"))
            low = db.execute(
                "SELECT trace_id, span_id, keys, remaining, until_ns FROM low_answer"
                " WHERE until_ns > ? ORDER BY until_ns",
                (now_ns,),
            )
            return windows, tuple(map(_low_answer, low))

        return await self._submit(work)

    async def statuses(self, trace_id: str) -> Mapping[str, EarlierDecision]:
        def work(db: sqlite3.Connection) -> Mapping[str, EarlierDecision]:
            rows = db.execute(
                f"SELECT span_id, outcome, {CHOSEN} FROM job WHERE trace_id = ? AND outcome != 'superseded'",
                (trace_id,),
            )
            return {
                span_id: EarlierDecision(outcome, sample_in(*sample)) for span_id, outcome, *sample in rows
            }

        return await self._submit(work)

    async def save(self, changes: SamplingChanges) -> None:
        def work(db: sqlite3.Connection) -> None:
            _put_windows(db, changes.windows)
            _forget_windows(db, changes.horizons)
            _put_left_out_answers(db, changes.left_out_answers)
            db.executemany(
                f"UPDATE low_answer SET remaining = ? WHERE {_THIS}",
                [(low.remaining, low.trace_id, low.span_id) for low in changes.low],
            )

        await self._submit(work)

    async def candidates(self, keys: Sequence[str], *, limit: int) -> tuple[RelatedAnswer, ...]:
        def work(db: sqlite3.Connection) -> tuple[RelatedAnswer, ...]:
            found = {each for key in keys for each in _with_key(db, key, limit)}
            return tuple(sorted(found, reverse=True)[:limit])

        return await self._submit(work)

    async def select_related(self, low: LowAnswer, jobs: Sequence[Job], *, now_ns: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            db.execute("DELETE FROM low_answer WHERE until_ns <= ?", (now_ns,))
            db.execute(
                "INSERT OR IGNORE INTO low_answer VALUES (?, ?, ?, ?, ?)",
                (low.trace_id, low.span_id, " ".join(low.keys), low.remaining, low.until_ns),
            )
            for job in jobs:
                db.execute(f"DELETE FROM lingering WHERE {_THIS}", (job.trace_id, job.span_id))
            return sum(select_follow_ups(db, job, now_ns=now_ns) for job in jobs)

        return await self._submit(work)

    async def _submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._commits.submit(work)
        except sqlite3.OperationalError as exc:
            raise StoreUnavailable(f"the state of sampling cannot be stored: {exc}") from exc


def select_follow_ups(db: sqlite3.Connection, job: Job, *, now_ns: int) -> int:
    """Queue an answer that was sampled out; return 1, or 0 if it was not."""
    cursor = db.execute(
        f"UPDATE job SET ({CHOSEN}) = (?, ?, ?, ?, ?), state = 'queued', seen_ns = ?, due_ns = ?,"
        f" ended_ns = NULL, outcome = '' WHERE {_THIS} AND outcome = 'sampled_out'",
        (*chosen(job.sample), now_ns, now_ns, job.trace_id, job.span_id),
    )
    return cursor.rowcount


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


def _put_windows(db: sqlite3.Connection, rows: Sequence[WindowRow]) -> None:
    db.executemany("INSERT OR REPLACE INTO sample_window VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _forget_windows(db: sqlite3.Connection, horizons: Sequence[UsefulWindows]) -> None:
    db.executemany(
        "DELETE FROM sample_window WHERE period = ? AND start_ns NOT BETWEEN ? AND ?",
        horizons,
    )


def _put_left_out_answers(db: sqlite3.Connection, answers: Sequence[LeftOutAnswer]) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO lingering VALUES (?, ?, ?, ?)",
        [(key, each.seen_ns, each.trace_id, each.span_id) for each in answers for key in each.keys],
    )


def _with_key(db: sqlite3.Connection, key: str, limit: int) -> Iterator[RelatedAnswer]:
    # The newest first: all the answers may have the same prompt version.
    rows = db.execute(
        "SELECT near.seen_ns, trace_id, span_id, tenant"
        " FROM (SELECT * FROM lingering WHERE key = ? ORDER BY seen_ns DESC LIMIT ?) AS near"
        " JOIN job USING (trace_id, span_id)"
        " WHERE outcome = 'sampled_out' AND EXISTS (SELECT 1 FROM slice WHERE slice.trace_id = job.trace_id)",
        (key, limit),
    )
    return (RelatedAnswer(*row) for row in rows)


def _low_answer(row: tuple[str, str, str, int, int]) -> LowAnswer:
    trace_id, span_id, keys, remaining, until_ns = row
    return LowAnswer(
        trace_id=trace_id, span_id=span_id, keys=tuple(keys.split()), remaining=remaining, until_ns=until_ns
    )
