"""Traces being read, noted before they are, so that a restart knows which may have crashed the process.

As with leases of answers, a trace that was being read when a process crashed is from then on read alone. If
the next process crashes too, that trace is the cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ragtrace.sql import Db
from ragtrace_collector.ledger import POISON
from ragtrace_collector.store.leases import LEASED_SUSPECTS
from ragtrace_collector.store.records import QuarantineRecord
from ragtrace_collector.store.revisions import UNDECIDED, decide_trace

_KNOWN: Final = "SELECT crashes, poison FROM suspect WHERE trace_id = ? AND (crashes > 0 OR poison != '')"
_ELSEWHERE: Final = f"SELECT 1 FROM trace WHERE trace_id = ? AND {UNDECIDED} AND owner NOT IN (0, ?)"
_LOOK: Final = (
    "INSERT INTO suspect (trace_id, is_looked_at, owner) VALUES (?, 1, ?)"
    " ON CONFLICT (trace_id) DO UPDATE SET is_looked_at = 1, owner = excluded.owner"
)
_SUSPECTS_UNDER_WAY: Final = (
    "SELECT 1 FROM suspect WHERE is_looked_at = 1 AND crashes > 0 AND owner = ? LIMIT 1",
    f"SELECT 1 FROM {LEASED_SUSPECTS} AND owner = ? LIMIT 1",
)


def look(db: Db, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord | None]:
    """Note that traces are being read, except suspects and those of other writers, which are returned."""
    known: dict[str, QuarantineRecord | None] = {}
    for trace_id in trace_ids:
        if db.writer and db.execute(_ELSEWHERE, (trace_id, db.writer)).fetchone():
            known[trace_id] = None
            continue
        found = db.execute(_KNOWN, (trace_id,)).fetchone()
        if found is None:
            db.execute(_LOOK, (trace_id, db.writer))
        else:
            known[trace_id] = QuarantineRecord(crashes=found[0], poison=found[1])
    return known


def look_alone(db: Db, trace_id: str) -> bool:
    """Note that a suspect is being read; not while another suspect is."""
    if any(db.execute(query, (db.writer,)).fetchone() for query in _SUSPECTS_UNDER_WAY):
        return False
    db.execute(_LOOK, (trace_id, db.writer))
    return True


def end_look(db: Db, trace_ids: Collection[str]) -> None:
    """Note that traces were read without a crash."""
    rows = [(trace_id,) for trace_id in trace_ids]
    db.executemany("DELETE FROM suspect WHERE trace_id = ? AND crashes = 0 AND poison = ''", rows)
    db.executemany("UPDATE suspect SET is_looked_at = 0 WHERE trace_id = ?", rows)


def clear(db: Db, trace_id: str) -> None:
    """Clear the suspicion against a trace, because its decision is made."""
    db.execute("DELETE FROM suspect WHERE trace_id = ? AND poison = ''", (trace_id,))


def set_aside(db: Db, trace_id: str, *, poison: str, now_ns: int) -> int:
    """Set a trace aside. Its queued answers end; return how many."""
    db.execute(
        "INSERT INTO suspect (trace_id, poison) VALUES (?, ?)"
        " ON CONFLICT (trace_id) DO UPDATE SET poison = excluded.poison, is_looked_at = 0",
        (trace_id, poison),
    )
    decide_trace(db, trace_id, slices=None, now_ns=now_ns)
    return db.execute(
        "UPDATE job SET state = 'ended', outcome = ?, ended_ns = ? WHERE trace_id = ? AND state = 'queued'",
        (POISON, now_ns, trace_id),
    ).rowcount
