"""Judged sessions in the index: a row a span, which later ones supersede."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ragtrace.answers.index._filter import Condition, clean, streams_in
from ragtrace.answers.port import SessionKey, SessionPage, TrafficScope
from ragtrace.answers.sessions import FaultKind, SessionFault, SessionSummary
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import InputError
from ragtrace.model import Label
from ragtrace.sql import Statements

_AS_THEY_ARE: Final = (
    *("tenant", "trace_id", "answer_span_id", "span_id", "supersedes", "turns", "decided", "faithful"),
    *("contradictions", "repeated", "corrections", "unchecked"),
)
_COLUMNS: Final = ("session", "time_ns", "label", "faults", *_AS_THEY_ARE)
_OF_ID: Final = "tenant = ? AND session = ?"
_PUT: Final = (
    f"INSERT INTO answer_session ({', '.join(_COLUMNS)}, is_valid)"
    f" VALUES ({', '.join('?' for _ in _COLUMNS)}, ?) ON CONFLICT (session, tenant, span_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS, "is_valid"))
)
MOST_UNDER_ID: Final = 50
_LATEST: Final = 2**63 - 1


def put_session(db: Statements, summary: SessionSummary) -> None:
    """Add a session; what its span supersedes counts no longer, whichever of the two comes first."""
    same = (summary.tenant, clean(summary.session))
    superseded = db.execute(
        f"SELECT 1 FROM answer_session WHERE {_OF_ID} AND supersedes = ?", (*same, summary.span_id)
    )
    faults = [
        [fault.kind.value, fault.turn, *fault.answer[:2], fault.earlier_turn, *fault.earlier[:2]]
        for fault in summary.faults
    ]
    told = (same[1], min(summary.time_ns, _LATEST), summary.label.value, json.dumps(faults))
    as_they_are = (getattr(summary, name) for name in _AS_THEY_ARE)
    db.execute(_PUT, (*told, *as_they_are, int(superseded.fetchone() is None)))
    if summary.supersedes:
        db.execute(
            f"UPDATE answer_session SET is_valid = 0 WHERE {_OF_ID} AND span_id = ?",
            (*same, summary.supersedes),
        )


def forget_sessions(db: Statements, *, before_ns: int, at_once: int) -> None:
    """Delete the oldest sessions from before a time."""
    db.execute(
        "DELETE FROM answer_session WHERE id IN"
        " (SELECT id FROM answer_session WHERE time_ns < ? ORDER BY time_ns LIMIT ?)",
        (min(before_ns, 2**63 - 1), at_once),
    )


def session_page(
    db: Statements, *, tenant: str | None, label: Label | None, after: str | None, limit: int
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
    db: Statements, tenant: str | None, place: _Place, limit: int
) -> tuple[list[tuple[_Place, SessionKey]], _Place | None]:
    """Return sessions at the places of their last answers, and the place up to which was looked, if not to
    the end: a session may have most of a million rows."""
    time_ns, kind, number = place
    seen, at_once = (time_ns, number if kind else -1), 4 * limit
    of_tenant = _of_tenant(tenant)
    if tenant is not None:  # the few rows of a small tenant are sorted, those of a large one are met in order
        streams = streams_in(db, TrafficScope(tenant=tenant))
        some = f"SELECT id FROM answer_row WHERE {streams.sql} LIMIT ?"
        few = (*streams.values, _FEW)
        (rows_of_it,) = db.execute(f"SELECT count(*) FROM ({some}) AS found", few).fetchone()
        if rows_of_it < _FEW:
            of_tenant, at_once = Condition(f" AND id IN ({some})", few), _MOST_LOOKED_AT
    found: list[tuple[_Place, SessionKey]] = []
    looked = 0
    while looked < _MOST_LOOKED_AT:
        rows = db.execute(
            "SELECT time_ns, id, session, tenant, CASE WHEN EXISTS (SELECT 1 FROM answer_row AS later"
            " WHERE later.session = answer_row.session AND later.session != '' AND later.id > answer_row.id"
            " AND later.is_valid = 1 AND later.tenant = answer_row.tenant) THEN 0 ELSE 1 END"
            f" FROM answer_row WHERE {_HAS_SESSION} AND (time_ns, id) < (?, ?){of_tenant.sql}"
            " ORDER BY time_ns DESC, id DESC LIMIT ?",
            (*seen, *of_tenant.values, at_once),
        ).fetchall()
        for time_ns, number, session, owner, is_last in rows:
            if is_last:
                found.append(((time_ns, 1, number), SessionKey(session, owner)))
            if len(found) > limit:
                return found, (time_ns, 1, number)
        if len(rows) < at_once:
            return found, None
        seen, looked, at_once = tuple(rows[-1][:2]), looked + len(rows), 4 * at_once
    return found, (seen[0], 1, seen[1])


_MOST_LOOKED_AT: Final = 25_000
"""Rows for one page: about a tenth of a second."""
_FEW: Final = 4_000
_HAS_SESSION: Final = "answer_row.is_valid = 1 AND answer_row.session != ''"


def _of_tenant(tenant: str | None) -> Condition:
    return Condition() if tenant is None else Condition(" AND tenant = ?", (clean(tenant),))


def _judged_only(
    db: Statements, tenant: str | None, label: Label | None, place: _Place, limit: int
) -> Iterator[tuple[_Place, SessionKey]]:
    time_ns, kind, number = place
    of_tenant = _of_tenant(tenant)
    wanted = Condition(
        f" AND NOT EXISTS (SELECT 1 FROM answer_row WHERE {_HAS_SESSION}"
        " AND answer_row.session = answer_session.session AND answer_row.tenant = answer_session.tenant)"
    )
    if label is not None:
        wanted = Condition(" AND label = ?", (label.value,))
    rows = db.execute(
        "SELECT time_ns, id, session, tenant FROM answer_session WHERE is_valid = 1"
        f" AND (time_ns, id) < (?, ?){of_tenant.sql}{wanted.sql} ORDER BY time_ns DESC, id DESC LIMIT ?",
        (time_ns, _LATEST if kind else number, *of_tenant.values, *wanted.values, limit + 1),
    )
    for time_ns, number, session, owner in rows.fetchall():
        yield (time_ns, 0, number), SessionKey(session, owner)


def _place(cursor: str) -> _Place:
    if not re.fullmatch(r"\d{1,19}-[01]-\d{1,19}", cursor):
        raise InputError("this is not a place in the list of sessions")
    time_ns, kind, row = (min(int(number), _LATEST) for number in cursor.split("-"))
    return time_ns, kind, row


def judged_sessions(db: Statements, session: str, tenant: str | None) -> Sequence[SessionSummary]:
    """Return the valid sessions under an id, the newest first."""
    of_tenant = _of_tenant(tenant)
    rows = db.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM answer_session WHERE session = ?{of_tenant.sql}"
        " AND is_valid = 1 ORDER BY time_ns DESC, id DESC LIMIT ?",
        (clean(session), *of_tenant.values, MOST_UNDER_ID),
    )
    return [_summary(row) for row in rows.fetchall()]


def _summary(row: Sequence[Any]) -> SessionSummary:
    session, time_ns, label, faults, *as_they_are = row
    told: dict[str, Any] = dict(zip(_AS_THEY_ARE, as_they_are, strict=True))
    tenant = told["tenant"]
    return SessionSummary(
        session=session,
        time_ns=time_ns,
        label=Label(label),
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
        **told,
    )
