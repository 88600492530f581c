"""The sampling state in the store: counts for adaptive rates, low answers, and answers related to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ragtrace.sql import Db
from ragtrace.traces.attach import Sample, Screening
from ragtrace_collector.sampling.follow_up import LowAnswer
from ragtrace_collector.sampling.sampler import EarlierDecision, LeftOutAnswer, SamplingChanges
from ragtrace_collector.sampling.windows import UsefulWindows, WindowRow
from ragtrace_collector.store.database import Commits
from ragtrace_collector.store.records import Job, RelatedAnswer

_THIS: Final = "trace_id = ? AND span_id = ?"
_WINDOW: Final = "period, start_ns, tenant, seen, demand, floor, kept"


class SamplingState:
    """Counts for adaptive rates, low answers, and the answers that may be related to them.

    Each method is one transaction. All raise StoreUnavailable: then nothing has changed.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def load(self, *, now_ns: int) -> tuple[tuple[WindowRow, ...], tuple[LowAnswer, ...]]:
        """Return the counts of the last windows in any order, and the low answers that are still active.

        The low answers come in the order in which they end.
        """

        def work(db: Db) -> tuple[tuple[WindowRow, ...], tuple[LowAnswer, ...]]:
            windows = tuple(WindowRow(*row) for row in db.execute(f"SELECT {_WINDOW} FROM sample_window"))
            low = db.execute(
                "SELECT trace_id, span_id, keys, remaining, until_ns FROM low_answer"
                " WHERE until_ns > ? ORDER BY until_ns",
                (now_ns,),
            )
            return windows, tuple(map(_low_answer, low))

        return await self._commits.submit(work)

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

    async def save(self, changes: SamplingChanges) -> None:
        """Store what the decisions changed.

        A row replaces that of its period, window and tenant. Windows outside a period's horizon are deleted.
        Of a known low answer, the number of related answers that it may still keep is stored; an unknown one
        is ignored. An answer that was left out twice is kept once.
        """

        def work(db: Db) -> None:
            _put_windows(db, changes.windows)
            _forget_windows(db, changes.horizons)
            _put_left_out_answers(db, changes.left_out_answers)
            db.executemany(
                f"UPDATE low_answer SET remaining = ? WHERE {_THIS}",
                [(low.remaining, low.trace_id, low.span_id) for low in changes.low],
            )

        await self._commits.submit(work)

    async def candidates(self, keys: Sequence[str], *, limit: int) -> tuple[RelatedAnswer, ...]:
        """Return the newest answers that were sampled out, have one of the keys, and still have their spans.

        The newest comes first, each once.
        """

        def work(db: Db) -> tuple[RelatedAnswer, ...]:
            found = {each for key in keys for each in _with_key(db, key, limit)}
            return tuple(sorted(found, reverse=True)[:limit])

        return await self._commits.submit(work)

    async def select_related(self, low: LowAnswer, jobs: Sequence[Job], *, now_ns: int) -> int:
        """Store a low answer, and queue related answers that were sampled out; return how many.

        A low answer that is known stays as it is. Those that have ended are deleted.
        """

        def work(db: Db) -> int:
            db.execute("DELETE FROM low_answer WHERE until_ns <= ?", (now_ns,))
            db.execute(
                "INSERT INTO low_answer (trace_id, span_id, keys, remaining, until_ns) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (trace_id, span_id) DO NOTHING",
                (low.trace_id, low.span_id, " ".join(low.keys), low.remaining, low.until_ns),
            )
            for job in jobs:
                db.execute(f"DELETE FROM lingering WHERE {_THIS}", (job.trace_id, job.span_id))
            return sum(select_follow_ups(db, job, now_ns=now_ns) for job in jobs)

        return await self._commits.submit(work)


def select_follow_ups(db: Db, job: Job, *, now_ns: int) -> int:
    """Queue an answer that was sampled out; return 1, or 0 if it was not."""
    cursor = db.execute(
        "UPDATE job SET rule = ?, rate = ?, probability = ?, suspicion = ?, screened = ?,"
        " state = 'queued', seen_ns = ?, due_ns = ?,"
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


def _put_windows(db: Db, rows: Sequence[WindowRow]) -> None:
    db.executemany(
        f"INSERT INTO sample_window ({_WINDOW}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (period, start_ns, tenant) DO UPDATE SET seen = excluded.seen,"
        " demand = excluded.demand, floor = excluded.floor, kept = excluded.kept",
        rows,
    )


def _forget_windows(db: Db, horizons: Sequence[UsefulWindows]) -> None:
    db.executemany(
        "DELETE FROM sample_window WHERE period = ? AND start_ns NOT BETWEEN ? AND ?",
        horizons,
    )


def _put_left_out_answers(db: Db, answers: Sequence[LeftOutAnswer]) -> None:
    db.executemany(
        "INSERT INTO lingering (key, seen_ns, trace_id, span_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (key, seen_ns, trace_id, span_id) DO NOTHING",
        [(key, each.seen_ns, each.trace_id, each.span_id) for each in answers for key in each.keys],
    )


def _with_key(db: Db, key: str, limit: int) -> Iterator[RelatedAnswer]:
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
