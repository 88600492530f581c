"""Judged sessions in the index: a row a span, which later ones supersede."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ragtrace.answers.index._rows import packed_session, session_hash, unpacked_session
from ragtrace.answers.port import SessionKey, SessionPage
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
    """Return a page of sessions: by their newest answers, or with a label by their verdicts.

    A judged session of which no answer is here is also among those without a label.

    Raises:
        InputError: the cursor is none.
    """
    place = (_LATEST, 1, _LATEST) if after is None else _place(after)
    found, end = _of_answers(db, tenant, place, limit) if label is None else ([], None)
    found += _judged_only(db, tenant, label, place, limit)
    shown = sorted((each for each in found if end is None or each[0] >= end), reverse=True)[:limit]
    if len(shown) == limit < len(found):
        end = shown[-1][0]
    return SessionPage(
        sessions=tuple(key for _, key in shown), next=None if end is None else "-".join(map(str, end))
    )


_Place = tuple[int, int, int]
"""Time, 1 for an answer or 0 for a verdict, and the number of the row."""


def _of_answers(
    db: sqlite3.Connection, tenant: str | None, place: _Place, limit: int
) -> tuple[list[tuple[_Place, SessionKey]], _Place | None]:
    """Return sessions at the places of their last answers, and the place up to which was looked, if not to
    the end: a session may have most of a million rows."""
    time_ns, kind, number = place
    of_tenant, values = "", (time_ns, number if kind else -1)
    if tenant is not None:  # the few rows of a small tenant are sorted, those of a large one are met in order
        some = (
            f"SELECT 1 FROM answer_row WHERE is_valid = 1 AND stream IN {_OF_TENANT} LIMIT {_MOST_LOOKED_AT}"
        )
        (rows_of_it,) = db.execute(f"SELECT count(*) FROM ({some})", (tenant,)).fetchone()
        of_tenant = f" AND {'+' if rows_of_it == _MOST_LOOKED_AT else ''}stream IN {_OF_TENANT}"
    rows = db.execute(
        "SELECT answer_row.time_ns, answer_row.id, session, tenants.text,"
        " NOT EXISTS (SELECT 1 FROM answer_row AS later"
        " CROSS JOIN answer_stream AS of ON of.id = later.stream"
        " WHERE later.session_hash = answer_row.session_hash AND later.id > answer_row.id"
        " AND later.session = answer_row.session AND later.is_valid = 1 AND of.tenant = answer_stream.tenant)"
        " FROM answer_row CROSS JOIN answer_stream ON answer_stream.id = stream"
        f" LEFT JOIN answer_word AS tenants ON tenants.id = tenant WHERE {_HAS_SESSION}"
        f" AND (time_ns, answer_row.id) < (?, ?){of_tenant} ORDER BY time_ns DESC, answer_row.id DESC",
        values if tenant is None else (*values, tenant),
    )
    found: list[tuple[_Place, SessionKey]] = []
    for looked, (time_ns, number, session, owner, is_last) in enumerate(rows, start=1):
        if is_last:
            found.append(((time_ns, 1, number), SessionKey(unpacked_session(session), owner or "")))
        if len(found) > limit or looked == _MOST_LOOKED_AT:
            return found, (time_ns, 1, number)
    return found, None


_MOST_LOOKED_AT: Final = 25_000
"""Rows for one page: about a tenth of a second."""
_OF_TENANT: Final = (
    "(SELECT own.id FROM answer_stream AS own LEFT JOIN answer_word ON answer_word.id = own.tenant"
    " WHERE coalesce(text, '') = ?)"
)
_HAS_SESSION: Final = "answer_row.is_valid = 1 AND answer_row.session_hash IS NOT NULL"


def _judged_only(
    db: sqlite3.Connection, tenant: str | None, label: Label | None, place: _Place, limit: int
) -> Iterator[tuple[_Place, SessionKey]]:
    db.create_function("session_hash_of", 1, session_hash)
    db.create_function("packed_session_of", 1, packed_session)
    time_ns, kind, number = place
    rows = db.execute(
        "SELECT time_ns, id, session, tenant FROM answer_session WHERE is_valid = 1"
        " AND (time_ns, id) < (?1, ?2) AND (?3 IS NULL OR tenant = ?3) AND (?4 IS NULL OR label = ?4)"
        " AND (?4 IS NOT NULL OR NOT EXISTS (SELECT 1 FROM answer_row"
        " CROSS JOIN answer_stream ON answer_stream.id = stream"
        " LEFT JOIN answer_word AS tenants ON tenants.id = answer_stream.tenant"
        f" WHERE {_HAS_SESSION} AND session_hash = session_hash_of(answer_session.session)"
        " AND answer_row.session = packed_session_of(answer_session.session)"
        " AND coalesce(tenants.text, '') = answer_session.tenant))"
        " ORDER BY time_ns DESC, id DESC LIMIT ?5",
        (time_ns, _LATEST if kind else number, tenant, label and label.value, limit + 1),
    )
    for time_ns, number, session, owner in rows.fetchall():
        yield (time_ns, 0, number), SessionKey(session, owner)


def _place(cursor: str) -> _Place:
    if not re.fullmatch(r"\d{1,19}-[01]-\d{1,19}", cursor):
        raise InputError("this is not a place in the list of sessions")
    time_ns, kind, row = (min(int(number), _LATEST) for number in cursor.split("-"))
    return time_ns, kind, row


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
