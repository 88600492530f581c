"""Held traces: their slices are the originals, and go into the outbox when the hold ends.

A trace is held while it has a row in ``held``. The transaction that deletes the row also puts its spans into
the outbox, so that each span is forwarded once, with or without scores, even after a crash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ragtrace.traces.additions import add_to_spans
from ragtrace.traces.log_records import without_stand_ins
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.store.port import Job, ReleasedTraces
from ragtrace_collector.store.revisions import UNDECIDED

HOLDS: Final = """
CREATE TABLE held (
    trace_id TEXT PRIMARY KEY, since_ns INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX held_since ON held (since_ns);
CREATE TABLE addition (     -- what answer spans of held traces get
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
"""
_OPEN_JOB: Final = "SELECT 1 FROM job WHERE trace_id = ? AND state != 'ended'"
_UNDECIDED: Final = f"SELECT 1 FROM trace WHERE trace_id = ? AND {UNDECIDED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTraces:
    """The held traces of one store. Every method runs inside a transaction."""

    sinks: tuple[str, ...]
    """The sinks of released spans."""

    def pass_on(self, db: sqlite3.Connection, part: TraceSlice, *, hold_new: bool, now_ns: int) -> None:
        """Hold a slice if its trace is held, or is new and to be held; else forward it.

        Call it before the slice is stored: a known trace that is not held was released.
        """
        size = len(part.payload)
        if db.execute("UPDATE held SET bytes = bytes + ? WHERE trace_id = ?", (size, part.trace_id)).rowcount:
            return
        if hold_new and not _exists(db, "SELECT 1 FROM trace WHERE trace_id = ?", part.trace_id):
            db.execute("INSERT INTO held VALUES (?, ?, ?)", (part.trace_id, now_ns, size))
        else:
            self._forward(db, part.payload)

    def add(self, db: sqlite3.Connection, job: Job, addition: bytes) -> bool:
        """Store what to add to the answer span; say whether its trace is still held."""
        cursor = db.execute(
            "INSERT OR REPLACE INTO addition"
            " SELECT trace_id, ?, sealed(?, trace_id) FROM held WHERE trace_id = ?",
            (job.span_id, addition, job.trace_id),
        )
        return cursor.rowcount > 0

    def of_others(self, outbox_items: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return what goes to sinks that don't get the originals, because they always need a carrier."""
        return {sink: payload for sink, payload in outbox_items.items() if sink not in self.sinks}

    def release(self, db: sqlite3.Connection, trace_id: str) -> None:
        """Forward the held spans of a trace, in order of arrival, with their additions."""
        if not db.execute("DELETE FROM held WHERE trace_id = ?", (trace_id,)).rowcount:
            return
        additions = dict(
            db.execute(
                "SELECT span_id, unsealed(payload, trace_id) FROM addition WHERE trace_id = ?", (trace_id,)
            ).fetchall()
        )
        db.execute("DELETE FROM addition WHERE trace_id = ?", (trace_id,))
        slices = db.execute(
            "SELECT unsealed(payload, trace_id) FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,)
        )
        for (payload,) in slices.fetchall():
            self._forward(db, add_to_spans(payload, additions))

    def release_if_done(self, db: sqlite3.Connection, trace_id: str) -> None:
        """Release a trace that waits for nothing: no answer to judge, no decision to make."""
        if not (_exists(db, _OPEN_JOB, trace_id) or _exists(db, _UNDECIDED, trace_id)):
            self.release(db, trace_id)

    def release_overdue(
        self, db: sqlite3.Connection, *, before_ns: int, now_ns: int, most_bytes: int, limit: int
    ) -> ReleasedTraces:
        """Release the traces held since before a time, or since a future time, if the clock was set back.

        Then release the oldest, until the held bytes are within the limit.
        """
        overdue = db.execute(
            "SELECT trace_id FROM held WHERE since_ns <= ? OR since_ns > ? ORDER BY since_ns LIMIT ?",
            (before_ns, now_ns, limit),
        ).fetchall()
        self._release_each(db, overdue)
        surplus = db.execute(
            "SELECT trace_id FROM (SELECT trace_id, since_ns,"
            " sum(bytes) OVER (ORDER BY since_ns DESC, trace_id) AS newer FROM held)"
            " WHERE newer > ? ORDER BY since_ns LIMIT ?",
            (most_bytes, limit),
        ).fetchall()
        self._release_each(db, surplus)
        return ReleasedTraces(
            overdue=len(overdue), surplus=len(surplus), queue_ns=now_ns - _next_due_ns(db, now_ns)
        )

    def _release_each(self, db: sqlite3.Connection, rows: Iterable[tuple[str]]) -> None:
        for (trace_id,) in rows:
            self.release(db, trace_id)

    def _forward(self, db: sqlite3.Connection, payload: bytes) -> None:
        payload = without_stand_ins(payload)
        if not payload:
            return
        db.executemany(
            "INSERT INTO parcel (sink, payload) VALUES (?1, sealed(?2, ?1))",
            [(sink, payload) for sink in self.sinks],
        )


def _next_due_ns(db: sqlite3.Connection, now_ns: int) -> int:
    (due_ns,) = db.execute("SELECT min(due_ns) FROM job WHERE state = 'queued'").fetchone()
    return now_ns if due_ns is None else min(due_ns, now_ns)


def _exists(db: sqlite3.Connection, query: str, trace_id: str) -> bool:
    return db.execute(f"{query} LIMIT 1", (trace_id,)).fetchone() is not None
