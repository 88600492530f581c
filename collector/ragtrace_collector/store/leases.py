"""Leases of jobs. A lease ends with the process; a lease that ends in a crash counts against its job.

A record that crashes the process (out of memory, a crash in a library) also ends the leases of other jobs. So
each job that was leased at a crash is from then on leased alone: if the next process crashes too, that job is
the cause, and no other job is set aside for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ragtrace.sql import Db, Rows, skip_locked
from ragtrace_collector.store.records import Job
from ragtrace_collector.store.sampling import CHOSEN, CHOSEN_COLUMNS, sample_in

_THIS: Final = "trace_id = ? AND span_id = ?"
# A plus sign keeps the planner from the index of what is due, which has all due jobs.
_DUE: Final = "job WHERE state = 'queued' AND due_ns <= ? ORDER BY due_ns"
_OLD: Final = "job WHERE state != 'ended' AND seen_ns < ? AND state = 'queued' ORDER BY seen_ns"
_SUSPECTS: Final = (
    "job WHERE state != 'ended' AND crashes > 0 AND state = 'queued' AND +due_ns <= ? ORDER BY due_ns"
)
_LEASED: Final = "job WHERE state = 'leased'"
LEASED_SUSPECTS: Final = "job WHERE state != 'ended' AND crashes > 0 AND state = 'leased'"
_SUSPECT_TRACES: Final = "suspect WHERE is_looked_at = 1 AND crashes > 0"


def take(db: Db, limit: int, *, now_ns: int, seen_before_ns: int | None) -> tuple[Job, ...]:
    """Lease due jobs, or those queued before a time; a suspect is leased alone."""
    if seen_before_ns is not None:
        return _lease(db, _OLD, seen_before_ns, limit)
    own = " AND owner = ?"
    is_leased = db.execute(f"SELECT 1 FROM {LEASED_SUSPECTS}{own} LIMIT 1", (db.writer,))
    is_due = db.execute(f"SELECT 1 FROM {_SUSPECTS} LIMIT 1", (now_ns,))
    if is_leased.fetchone():
        return ()
    if is_due.fetchone():
        if _any(db, f"{_LEASED}{own}", db.writer) or _any(db, f"{_SUSPECT_TRACES}{own}", db.writer):
            return ()
        return _lease(db, _SUSPECTS, now_ns, 1)
    return _lease(db, _DUE, now_ns, limit)


def postpone(db: Db, job: Job, *, due_ns: int, reason: str, failed: bool) -> None:
    """Give a job back for later. It did not crash the process."""
    db.execute(
        "UPDATE job SET state = 'queued', due_ns = ?, reason = ?, attempts = attempts + ?, crashes = 0"
        f" WHERE {_THIS} AND owner IN (0, ?)",
        (due_ns, reason, int(failed), job.trace_id, job.span_id, db.writer),
    )


def ask(db: Db, job: Job) -> Rows:
    """Look a leased job up, for `looked_up`."""
    return db.execute(f"SELECT owner, is_moved FROM job WHERE {_THIS}", (job.trace_id, job.span_id))


def looked_up(db: Db, found: Rows) -> tuple[bool, bool]:
    """Say of a leased job whether another writer has it now, and whether its answer moved to another span."""
    owner, is_moved = found.fetchone() or (0, 0)
    return owner not in (0, db.writer), bool(is_moved)


def give_back(db: Db, job: Job) -> None:
    """Give a job back unchanged, unless it was ended or postponed meanwhile."""
    db.execute(
        f"UPDATE job SET state = 'queued' WHERE {_THIS} AND state = 'leased' AND owner = ?",
        (job.trace_id, job.span_id, db.writer),
    )


def _lease(db: Db, which: str, *values: int) -> tuple[Job, ...]:
    rows = db.execute(
        "UPDATE job SET state = 'leased', owner = ? WHERE (trace_id, span_id) IN ("
        f"SELECT trace_id, span_id FROM {which} LIMIT ?{skip_locked(db)})"
        " RETURNING trace_id, span_id, tenant, service,"
        f" {CHOSEN}, attempts, crashes, reason, seen_ns, revisions_left, carriers, replaces,"
        " (SELECT slices FROM trace WHERE trace.trace_id = job.trace_id),"
        " (SELECT is_cut FROM trace WHERE trace.trace_id = job.trace_id)",
        (db.writer, *values),
    )
    return tuple(map(_job, rows.fetchall()))


def _job(row: Sequence[Any]) -> Job:
    trace_id, span_id, tenant, service, *rest = row
    sample, progress = rest[:CHOSEN_COLUMNS], rest[CHOSEN_COLUMNS:]
    attempts, crashes, reason, seen_ns, left, carriers, replaces, slices, is_cut = progress
    return Job(
        trace_id=trace_id,
        span_id=span_id,
        tenant=tenant,
        service=service,
        sample=sample_in(*sample),
        attempts=attempts,
        crashes=crashes,
        reason=reason,
        seen_ns=seen_ns,
        revisions_left=left,
        carriers=carriers,
        replaces=replaces,
        slices=slices or 0,
        is_cut=bool(is_cut),
    )


def _any(db: Db, which: str, *values: int) -> bool:
    return db.execute(f"SELECT 1 FROM {which} LIMIT 1", values).fetchone() is not None
