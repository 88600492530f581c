"""Revisions: which record of each answer was judged, so that it is judged again if late spans change it.

Slices are counted, because times are wrong if the clock was set back. A trace is decided up to the slices
that were read, and a job has the digests of its record as last decided and as last judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.sql import Db, Rows
from ragtrace_collector.store.records import Job, JudgedInput

UNDECIDED: Final = "slices > settled_slices"
"""True of a trace without a decision, or that spans joined since."""

_THIS: Final = "trace_id = ? AND span_id = ?"
_QUEUE: Final = (
    "UPDATE job SET state = 'queued', outcome = '', reason = '', ended_ns = NULL, attempts = 0, crashes = 0,"
    " seen_ns = ?, due_ns = ?"
)
_BACK: Final = f"{_QUEUE} WHERE {_THIS} AND outcome = 'superseded' AND is_past = 0"
_AGAIN: Final = (
    f"{_QUEUE}, revisions_left = revisions_left - 1 WHERE {_THIS} AND state = 'ended' AND is_past = 0"
    " AND revisions_left > 0 AND judged NOT IN ('', wanted)"
)


def add_slice(db: Db, trace_id: str, *, now_ns: int) -> bool:
    """Count a slice; say whether its trace had others before."""
    row = db.execute(
        "INSERT INTO trace (trace_id, last_arrival_ns, slices, owner) VALUES (?, ?, 1, ?)"
        " ON CONFLICT (trace_id) DO UPDATE SET last_arrival_ns = excluded.last_arrival_ns,"
        " slices = trace.slices + 1, owner = excluded.owner RETURNING slices",
        (trace_id, now_ns, db.writer),
    ).fetchone()
    return bool(row[0] > 1)


def mark_cut(db: Db, trace_id: str, *, now_ns: int) -> None:
    """Note that spans of the trace were dropped."""
    db.execute(
        "INSERT INTO trace (trace_id, last_arrival_ns, settled_ns, is_cut) VALUES (?, ?, ?, 1)"
        " ON CONFLICT (trace_id) DO UPDATE SET is_cut = 1",
        (trace_id, now_ns, now_ns),
    )


def decide_trace(db: Db, trace_id: str, *, slices: int | None, now_ns: int) -> Rows:
    """Note up to which slice the trace is decided; a row says by 1 that more came since."""
    return db.execute(
        "UPDATE trace SET settled_ns = ?, settled_slices = coalesce(?, slices) WHERE trace_id = ?"
        f" RETURNING CASE WHEN {UNDECIDED} THEN 1 ELSE 0 END",
        (now_ns, slices, trace_id),
    )


def revise(db: Db, job: Job, *, slices: int | None, now_ns: int) -> list[Rows]:
    """Note the record of a known answer, and queue it again if another was judged: then it changes a row."""
    db.execute(
        f"UPDATE job SET wanted = ?, wanted_slices = coalesce(?, wanted_slices), is_moved = 0 WHERE {_THIS}",
        (job.record_sha256, slices, job.trace_id, job.span_id),
    )
    return [db.execute(each, (now_ns, now_ns, job.trace_id, job.span_id)) for each in (_BACK, _AGAIN)]


def move(db: Db, trace_id: str, moved: Mapping[str, str | None], *, now_ns: int) -> int:
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
            f" WHERE {_THIS} AND state != 'leased' AND outcome != 'superseded' AND is_past = 0",
            (now_ns, trace_id, span_id),
        ).rowcount
        if successor is not None:
            _hand_over(db, trace_id, span_id, successor)
    return ended


def _hand_over(db: Db, trace_id: str, span_id: str, successor: str) -> None:
    """Let the next carrier of the successor supersede the last one here, unless it supersedes another."""
    row = db.execute(f"SELECT replaces FROM job WHERE {_THIS}", (trace_id, span_id)).fetchone()
    if row is None or not row[0]:
        return
    handed = db.execute(
        f"UPDATE job SET replaces = ? WHERE {_THIS} AND replaces = ''", (*row, trace_id, successor)
    ).rowcount
    if handed:
        db.execute(f"UPDATE job SET replaces = '' WHERE {_THIS}", (trace_id, span_id))


def note_judged(db: Db, job: Job, judged: JudgedInput, *, carrier: str, now_ns: int) -> None:
    """Note which record was judged, and queue it again if spans changed it meanwhile."""
    this = (job.trace_id, job.span_id)
    replaces, values = (", carriers = carriers + 1, replaces = ?", (carrier,)) if carrier else ("", ())
    db.execute(f"UPDATE job SET judged = ?{replaces} WHERE {_THIS}", (judged.record_sha256, *values, *this))
    db.execute(f"{_AGAIN} AND wanted_slices > ?", (now_ns, now_ns, *this, judged.slices))


def forget(db: Db, trace_id: str) -> None:
    """End revisions of a trace's answers: its spans are deleted, and later ones make no whole record."""
    db.execute("UPDATE job SET is_past = 1 WHERE trace_id = ?", (trace_id,))
