"""Revisions: which record of each answer was judged, so that it is judged again if late spans change it.

Slices are counted, because times are wrong if the clock was set back. A trace is decided up to the slices
that were read, and a job has the digests of its record as last decided and as last judged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from ragtrace_collector.store.port import Job, JudgedInput

REVISIONS: Final = """
ALTER TABLE trace ADD COLUMN slices INTEGER NOT NULL DEFAULT 0;             -- that ever came
ALTER TABLE trace ADD COLUMN settled_slices INTEGER NOT NULL DEFAULT 0;     -- that it was settled with
ALTER TABLE trace ADD COLUMN is_cut INTEGER NOT NULL DEFAULT 0;             -- not all its spans were kept
UPDATE trace SET slices = 1, settled_slices = coalesce(settled_ns >= last_arrival_ns, 0);
CREATE INDEX trace_unsettled ON trace (trace_id) WHERE slices > settled_slices;
ALTER TABLE job ADD COLUMN wanted TEXT NOT NULL DEFAULT '';     -- digest of the record as it was settled last
ALTER TABLE job ADD COLUMN wanted_slices INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN judged TEXT NOT NULL DEFAULT '';     -- digest of the record as it was judged last
ALTER TABLE job ADD COLUMN revisions_left INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN carriers INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN replaces TEXT NOT NULL DEFAULT '';   -- the carrier that the next one supersedes
ALTER TABLE job ADD COLUMN is_moved INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN is_past INTEGER NOT NULL DEFAULT 0;  -- its spans were forgotten
"""
UNDECIDED: Final = "slices > settled_slices"
"""True of a trace without a decision, or that spans joined since."""

_THIS: Final = "trace_id = ? AND span_id = ?"
_QUEUE: Final = (
    "UPDATE job SET state = 'queued', outcome = '', reason = '', ended_ns = NULL, attempts = 0, crashes = 0,"
    " seen_ns = ?, due_ns = ?"
)
_BACK: Final = f"{_QUEUE} WHERE {_THIS} AND outcome = 'superseded' AND NOT is_past"
_AGAIN: Final = (
    f"{_QUEUE}, revisions_left = revisions_left - 1 WHERE {_THIS} AND state = 'ended' AND NOT is_past"
    " AND revisions_left > 0 AND judged NOT IN ('', wanted)"
)


def add_slice(db: sqlite3.Connection, trace_id: str, *, now_ns: int) -> bool:
    """Count a slice; say whether its trace had others before."""
    row = db.execute(
        "INSERT INTO trace (trace_id, last_arrival_ns, slices) VALUES (?, ?, 1) ON CONFLICT DO UPDATE"
        " SET last_arrival_ns = excluded.last_arrival_ns, slices = slices + 1 RETURNING slices",
        (trace_id, now_ns),
    ).fetchone()
    return bool(row[0] > 1)


def mark_cut(db: sqlite3.Connection, trace_id: str, *, now_ns: int) -> None:
    """Note that spans of the trace were dropped."""
    db.execute(
        "INSERT INTO trace (trace_id, last_arrival_ns, settled_ns, is_cut) VALUES (?1, ?2, ?2, 1)"
        " ON CONFLICT DO UPDATE SET is_cut = 1",
        (trace_id, now_ns),
    )


def decide_trace(db: sqlite3.Connection, trace_id: str, *, slices: int | None, now_ns: int) -> bool:
    """Note up to which slice the trace is decided; say whether more came since."""
    row = db.execute(
        "UPDATE trace SET settled_ns = ?, settled_slices = coalesce(?, slices) WHERE trace_id = ?"
        f" RETURNING {UNDECIDED}",
        (now_ns, slices, trace_id),
    ).fetchone()
    return row is None or not row[0]


def revise(db: sqlite3.Connection, job: Job, *, slices: int | None, now_ns: int) -> int:
    """Note the record of a known answer, and queue it again if another record was judged."""
    db.execute(
        f"UPDATE job SET wanted = ?, wanted_slices = coalesce(?, wanted_slices), is_moved = 0 WHERE {_THIS}",
        (job.record_sha256, slices, job.trace_id, job.span_id),
    )
    back = db.execute(_BACK, (now_ns, now_ns, job.trace_id, job.span_id)).rowcount
    return back + db.execute(_AGAIN, (now_ns, now_ns, job.trace_id, job.span_id)).rowcount


def move(db: sqlite3.Connection, trace_id: str, moved: Mapping[str, str | None], *, now_ns: int) -> int:
    """End answers that late spans moved to other spans; return how many. One being judged ends after that.

    The carrier at the other span supersedes the carrier here.
    """
    ended = 0
    for span_id, successor in moved.items():
        db.execute(
            f"UPDATE job SET is_moved = 1 WHERE {_THIS} AND state = 'leased'",
            (trace_id, span_id),
        )
        ended += db.execute(
            "UPDATE job SET state = 'ended', outcome = 'superseded', reason = '', ended_ns = ?"
            f" WHERE {_THIS} AND state != 'leased' AND outcome != 'superseded' AND NOT is_past",
            (now_ns, trace_id, span_id),
        ).rowcount
        if successor is not None:
            _hand_over(db, trace_id, span_id, successor)
    return ended


def _hand_over(db: sqlite3.Connection, trace_id: str, span_id: str, successor: str) -> None:
    """Let the next carrier of the successor supersede the last one here, unless it supersedes another."""
    handed = db.execute(
        "UPDATE job SET replaces = old.replaces FROM job AS old WHERE job.trace_id = ?1 AND job.span_id = ?3"
        " AND job.replaces = '' AND old.trace_id = ?1 AND old.span_id = ?2 AND old.replaces != ''",
        (trace_id, span_id, successor),
    ).rowcount
    if handed:
        db.execute(f"UPDATE job SET replaces = '' WHERE {_THIS}", (trace_id, span_id))


def has_moved(db: sqlite3.Connection, job: Job) -> bool:
    """Say whether the answer moved to another span while it was being judged."""
    row = db.execute(f"SELECT is_moved FROM job WHERE {_THIS}", (job.trace_id, job.span_id)).fetchone()
    return row is not None and bool(row[0])


def note_judged(db: sqlite3.Connection, job: Job, judged: JudgedInput, *, carrier: str, now_ns: int) -> None:
    """Note which record was judged, and queue it again if spans changed it meanwhile."""
    this = (job.trace_id, job.span_id)
    db.execute(
        "UPDATE job SET judged = ?1, carriers = carriers + (?2 != ''), replaces = iif(?2 = '', replaces, ?2)"
        " WHERE trace_id = ?3 AND span_id = ?4",
        (judged.record_sha256, carrier, *this),
    )
    db.execute(f"{_AGAIN} AND wanted_slices > ?", (now_ns, now_ns, *this, judged.slices))


def forget(db: sqlite3.Connection, trace_id: str) -> None:
    """End revisions of a trace's answers: its spans are deleted, and later ones make no whole record."""
    db.execute("UPDATE job SET is_past = 1 WHERE trace_id = ?", (trace_id,))
