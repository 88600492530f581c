"""What the store deletes, by age or because it is full."""

from __future__ import annotations

from typing import Final

from ragtrace.sql import Db
from ragtrace_collector.store._judged import forget_carriers, forget_content, forget_rows
from ragtrace_collector.store.revisions import UNDECIDED, forget
from ragtrace_collector.store.sessions import forget_sessions

_TRACES_AT_ONCE: Final = 100
_ROWS_AT_ONCE: Final = 1_000
"""A larger transaction would keep senders waiting, and make the log as long as what it deletes."""
_ALWAYS_NS: Final = (1 << 63) - 1


def forget_traces(db: Db, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete the spans of some finished traces, the oldest first; return how many."""
    found = db.execute(
        f"SELECT trace_id FROM trace WHERE settled_ns < ? AND NOT ({UNDECIDED})"
        " AND NOT EXISTS (SELECT 1 FROM job WHERE job.trace_id = trace.trace_id AND state != 'ended')"
        " AND NOT EXISTS (SELECT 1 FROM held WHERE held.trace_id = trace.trace_id)"
        " ORDER BY settled_ns LIMIT ?",
        (before_ns, _TRACES_AT_ONCE),
    ).fetchall()
    for (trace_id,) in found:
        forget(db, trace_id)
    for table in ("slice", "trace", "suspect", "lingering"):
        db.executemany(f"DELETE FROM {table} WHERE trace_id = ?", found)
    forget_carriers(db, found)
    return len(found)


def forget_rejected(db: Db, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete some rejected outbox items, the oldest first; return how many."""
    return db.execute(
        "DELETE FROM parcel WHERE id IN ("
        "SELECT id FROM parcel WHERE rejected_ns < ? ORDER BY rejected_ns LIMIT ?)",
        (before_ns, _TRACES_AT_ONCE),
    ).rowcount


def forget_jobs(db: Db, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete some ended answers, the oldest first; return how many.

    Until then, an answer whose spans are sent again is recognized, and not judged again.
    """
    found = db.execute(
        "SELECT trace_id, span_id FROM job WHERE state = 'ended' AND ended_ns < ?"
        " AND NOT EXISTS (SELECT 1 FROM trace WHERE trace.trace_id = job.trace_id)"
        " ORDER BY ended_ns LIMIT ?",
        (before_ns, _ROWS_AT_ONCE),
    ).fetchall()
    for table in ("job", "carrier"):
        db.executemany(f"DELETE FROM {table} WHERE trace_id = ? AND span_id = ?", found)
    return len(found)


def make_room(db: Db) -> int:
    """Delete some finished work, the least useful first; return how much, 0 if nothing is left."""
    return (
        forget_traces(db)
        or forget_content(db)
        or forget_rejected(db)
        or forget_jobs(db)
        or forget_sessions(db, before_ns=_ALWAYS_NS)
        or forget_rows(db, before_ns=_ALWAYS_NS, most_rows=0)
    )
