"""Traces being read, noted before they are, so that a restart knows which may have crashed the process.

As with leases of answers, a trace that was being read when a process crashed is from then on read alone. If
the next process crashes too, that trace is the cause.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from typing import Final

from ragtrace_collector.ledger.outcomes import POISON
from ragtrace_collector.store.port import QuarantineRecord
from ragtrace_collector.store.revisions import decide_trace

SUSPECTS: Final = """
CREATE TABLE suspect (
    trace_id TEXT PRIMARY KEY, is_looked_at INTEGER NOT NULL DEFAULT 0, crashes INTEGER NOT NULL DEFAULT 0,
    poison TEXT NOT NULL DEFAULT '') WITHOUT ROWID;     -- why it was set aside
CREATE TRIGGER suspect_forgotten AFTER DELETE ON trace BEGIN
    DELETE FROM suspect WHERE trace_id = OLD.trace_id;
END;
"""
_KNOWN: Final = "SELECT crashes, poison FROM suspect WHERE trace_id = ? AND (crashes > 0 OR poison != '')"
_LOOK: Final = (
    "INSERT INTO suspect (trace_id, is_looked_at) VALUES (?, 1) ON CONFLICT DO UPDATE SET is_looked_at = 1"
)
_SUSPECT_UNDER_WAY: Final = (
    "SELECT EXISTS (SELECT 1 FROM suspect WHERE is_looked_at AND crashes > 0)"
    " OR EXISTS (SELECT 1 FROM job INDEXED BY job_due WHERE state = 'leased' AND crashes > 0)"
)


def look(db: sqlite3.Connection, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord]:
    """Note that traces are being read, except suspects, which are returned."""
    known: dict[str, QuarantineRecord] = {}
    for trace_id in trace_ids:
        found = db.execute(_KNOWN, (trace_id,)).fetchone()
        if found is None:
            db.execute(_LOOK, (trace_id,))
        else:
            known[trace_id] = QuarantineRecord(crashes=found[0], poison=found[1])
    return known


def look_alone(db: sqlite3.Connection, trace_id: str) -> bool:
    """Note that a suspect is being read; not while another suspect is."""
    if db.execute(_SUSPECT_UNDER_WAY).fetchone()[0]:
        return False
    db.execute(_LOOK, (trace_id,))
    return True


def end_look(db: sqlite3.Connection, trace_ids: Collection[str]) -> None:
    """Note that traces were read without a crash."""
    rows = [(trace_id,) for trace_id in trace_ids]
    db.executemany("DELETE FROM suspect WHERE trace_id = ? AND crashes = 0 AND poison = ''", rows)
    db.executemany("UPDATE suspect SET is_looked_at = 0 WHERE trace_id = ?", rows)


def clear(db: sqlite3.Connection, trace_id: str) -> None:
    """Clear the suspicion against a trace, because its decision is made."""
    db.execute("DELETE FROM suspect WHERE trace_id = ? AND poison = ''", (trace_id,))


def set_aside(db: sqlite3.Connection, trace_id: str, *, poison: str, now_ns: int) -> int:
    """Set a trace aside. Its queued answers end; return how many."""
    db.execute(
        "INSERT INTO suspect (trace_id, poison) VALUES (?1, ?2)"
        " ON CONFLICT DO UPDATE SET poison = ?2, is_looked_at = 0",
        (trace_id, poison),
    )
    decide_trace(db, trace_id, slices=None, now_ns=now_ns)
    return db.execute(
        "UPDATE job SET state = 'ended', outcome = ?, ended_ns = ? WHERE trace_id = ? AND state = 'queued'",
        (POISON, now_ns, trace_id),
    ).rowcount


def end_all(db: sqlite3.Connection) -> None:
    """End all looks of a process that is gone; they count against their traces."""
    db.execute("UPDATE suspect SET is_looked_at = 0, crashes = crashes + 1 WHERE is_looked_at")
