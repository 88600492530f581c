"""What the store deletes, by age or because it is full, and how the file returns free pages."""

from __future__ import annotations

import sqlite3
from typing import Final

from ragtrace_collector.store._judged import forget_carriers, forget_content, forget_rows
from ragtrace_collector.store.revisions import UNDECIDED, forget
from ragtrace_collector.store.sessions import forget_sessions

_TRACES_AT_ONCE: Final = 100
_ROWS_AT_ONCE: Final = 1_000
"""A larger transaction would keep senders waiting, and make the log as long as what it deletes."""
_PAGES_AT_ONCE: Final = 1_000
_SPARE: Final = 4
"""Free pages are kept up to this share of those in use: at a steady rate they are soon needed again."""
_ALWAYS_NS: Final = (1 << 63) - 1


def forget_traces(db: sqlite3.Connection, *, before_ns: int = _ALWAYS_NS) -> int:
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
    db.executemany("DELETE FROM slice WHERE trace_id = ?", found)
    db.executemany("DELETE FROM trace WHERE trace_id = ?", found)
    forget_carriers(db, found)
    return len(found)


def forget_rejected(db: sqlite3.Connection, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete some rejected outbox items, the oldest first; return how many."""
    return db.execute(
        "DELETE FROM parcel WHERE id IN ("
        " SELECT id FROM parcel WHERE rejected_ns < ? ORDER BY rejected_ns LIMIT ?)",
        (before_ns, _TRACES_AT_ONCE),
    ).rowcount


def forget_jobs(db: sqlite3.Connection, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete some ended answers, the oldest first; return how many.

    Until then, an answer whose spans are sent again is recognized, and not judged again.
    """
    return db.execute(
        "DELETE FROM job WHERE (trace_id, span_id) IN ("
        " SELECT trace_id, span_id FROM job WHERE state = 'ended' AND ended_ns < ?"
        " AND NOT EXISTS (SELECT 1 FROM trace WHERE trace.trace_id = job.trace_id)"
        " ORDER BY ended_ns LIMIT ?)",
        (before_ns, _ROWS_AT_ONCE),
    ).rowcount


def make_room(db: sqlite3.Connection) -> int:
    """Delete some finished work, the least useful first; return how much, 0 if nothing is left."""
    return (
        forget_traces(db)
        or forget_content(db)
        or forget_rejected(db)
        or forget_jobs(db)
        or forget_sessions(db, before_ns=_ALWAYS_NS)
        or forget_rows(db, before_ns=_ALWAYS_NS, most_rows=0)
    )


def has_room(db: sqlite3.Connection, *, max_bytes: int) -> bool:
    """Say whether the pages in use are within the limit."""
    return _pages_in_use(db) * _one(db, "PRAGMA page_size") <= max_bytes


def shrink(db: sqlite3.Connection) -> bool:
    """Return some free pages to the disk; say whether there are more."""
    spare = _one(db, "PRAGMA freelist_count") - _pages_in_use(db) // _SPARE
    # One page a statement: the driver steps this pragma once, whatever its argument.
    for _ in range(min(_PAGES_AT_ONCE, spare)):
        db.execute("PRAGMA incremental_vacuum(1)")
    return spare > _PAGES_AT_ONCE


def _pages_in_use(db: sqlite3.Connection) -> int:
    return _one(db, "PRAGMA page_count") - _one(db, "PRAGMA freelist_count")


def _one(db: sqlite3.Connection, query: str) -> int:
    value: int = db.execute(query).fetchone()[0]
    return value
