"""Judged sessions in the index: a row a span, which later ones supersede."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from ragtrace.answers.port import SessionPage
from ragtrace.answers.sessions import FaultKind, SessionFault, SessionSummary
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import InputError
from ragtrace.model import Label

_COLUMNS: Final = (
    "session, tenant, trace_id, answer_span, span_id, supersedes, time_ns, label, turns, decided, faithful,"
    " contradictions, repeated, corrections, unchecked, faults"
)
MOST_UNDER_ID: Final = 50
_LATEST: Final = 2**63 - 1


def put_session(db: sqlite3.Connection, summary: SessionSummary) -> None:
    """Add a session; what its span supersedes counts no longer, whichever of the two comes first."""
    same = (summary.tenant, summary.session)
    superseded = db.execute(
        f"SELECT 1 FROM answer_session WHERE {_OF_ID} AND supersedes = ?", (*same, summary.span_id)
    )
    is_valid = superseded.fetchone() is None
    marks = ", ".join("?" for _ in range(17))
    db.execute(
        f"INSERT OR REPLACE INTO answer_session ({_COLUMNS}, is_valid) VALUES ({marks})",
        (*_row(summary), int(is_valid)),
    )
    if summary.supersedes:
        db.execute(
            f"UPDATE answer_session SET is_valid = 0 WHERE {_OF_ID} AND span_id = ?",
            (*same, summary.supersedes),
        )


def forget_sessions(db: sqlite3.Connection, *, before_ns: int, at_once: int) -> None:
    """Delete the oldest sessions from before a time."""
    db.execute(
        "DELETE FROM answer_session WHERE id IN"
        " (SELECT id FROM answer_session WHERE time_ns < ? ORDER BY time_ns LIMIT ?)",
        (min(before_ns, 2**63 - 1), at_once),
    )


def session_page(
    db: sqlite3.Connection, *, tenant: str | None, label: Label | None, after: str | None, limit: int
) -> SessionPage:
    """Return a page of valid sessions, the newest first.

    Raises:
        InputError: the cursor is none.
    """
    before = (_LATEST, _LATEST) if after is None else _place(after)
    rows = db.execute(
        f"SELECT {_COLUMNS}, id FROM answer_session WHERE is_valid = 1 AND (time_ns, id) < (?1, ?2)"
        " AND (?3 IS NULL OR tenant = ?3) AND (?4 IS NULL OR label = ?4)"
        " ORDER BY time_ns DESC, id DESC LIMIT ?5",
        (*before, tenant, label and label.value, limit + 1),
    ).fetchall()
    shown = [_summary(row) for row in rows[:limit]]
    return SessionPage(
        sessions=tuple(shown),
        next=f"{shown[-1].time_ns}-{rows[limit - 1][-1]}" if len(rows) > limit else None,
    )


def _place(cursor: str) -> tuple[int, int]:
    if not re.fullmatch(r"\d{1,19}-\d{1,19}", cursor):
        raise InputError("this is not a place in the list of sessions")
    time_ns, row = (min(int(number), _LATEST) for number in cursor.split("-"))
    return time_ns, row


def judged_sessions(db: sqlite3.Connection, session: str, tenant: str | None) -> Sequence[SessionSummary]:
    """Return the valid sessions under an id, the newest first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM answer_session WHERE session = ?1 AND (?2 IS NULL OR tenant = ?2)"
        " AND is_valid = 1 ORDER BY time_ns DESC, id DESC LIMIT ?3",
        (session, tenant, MOST_UNDER_ID),
    )
    return [_summary(row) for row in rows.fetchall()]


_OF_ID: Final = "tenant = ? AND session = ?"


def _row(summary: SessionSummary) -> tuple[object, ...]:
    faults = [
        [fault.kind.value, fault.turn, *fault.answer[:2], fault.earlier_turn, *fault.earlier[:2]]
        for fault in summary.faults
    ]
    return (
        *(summary.session, summary.tenant, summary.trace_id, summary.answer_span_id, summary.span_id),
        *(summary.supersedes, min(summary.time_ns, 2**63 - 1), summary.label.value),
        *(summary.turns, summary.decided, summary.faithful, summary.contradictions, summary.repeated),
        *(summary.corrections, summary.unchecked, json.dumps(faults)),
    )


def _summary(row: Sequence[Any]) -> SessionSummary:
    session, tenant, trace_id, answer_span_id, span_id, supersedes, time_ns, label = row[:8]
    turns, decided, faithful, contradictions, repeated, corrections, unchecked, faults = row[8:16]
    return SessionSummary(
        session=session,
        tenant=tenant,
        trace_id=trace_id,
        answer_span_id=answer_span_id,
        span_id=span_id,
        supersedes=supersedes,
        time_ns=time_ns,
        label=Label(label),
        turns=turns,
        decided=decided,
        faithful=faithful,
        contradictions=contradictions,
        repeated=repeated,
        corrections=corrections,
        unchecked=unchecked,
        faults=tuple(
            SessionFault(
                kind=FaultKind(kind),
                turn=turn,
                answer=AnswerKey(trace, span, tenant),
                earlier_turn=earlier_turn,
                earlier=AnswerKey(earlier_trace, earlier_span, tenant),
            )
            for kind, turn, trace, span, earlier_turn, earlier_trace, earlier_span in json.loads(faults)
        ),
    )
