"""The index of judged answers in SQL: its tables, its rows without content, and what keeps them.

Every function here runs inside a transaction of whoever owns the file; `ragtrace.answers.index.AnswerIndex`
searches what they keep.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.answers.filters import LATEST_NS, Condition, clean
from ragtrace.answers.port import SessionKey, SessionPage
from ragtrace.answers.rows import from_json, to_json
from ragtrace.answers.summary import (
    AnswerKey,
    AnswerSummary,
    MetricSummary,
    SessionSummary,
    first_faithfulness,
)
from ragtrace.errors import InputError
from ragtrace.model import Direction, Label, VerdictCounts
from ragtrace.sql import Db

INDEX_TABLES: Final = """
CREATE TABLE answer_row (
    id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, judged_ns INTEGER NOT NULL,
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    carrier TEXT NOT NULL, supersedes TEXT NOT NULL,
    service TEXT NOT NULL, service_version TEXT NOT NULL, model TEXT NOT NULL, prompt_version TEXT NOT NULL,
    session TEXT NOT NULL, pipeline TEXT NOT NULL,
    label TEXT NOT NULL, reason TEXT NOT NULL, blame TEXT NOT NULL,
    judge TEXT NOT NULL, evaluator_version TEXT NOT NULL, rule TEXT NOT NULL,
    supported INTEGER NOT NULL, contradicted INTEGER NOT NULL, unsupported INTEGER NOT NULL,
    unjudged INTEGER NOT NULL, relevant INTEGER NOT NULL, partly_relevant INTEGER NOT NULL,
    irrelevant INTEGER NOT NULL, unjudged_chunks INTEGER NOT NULL,
    probability REAL, cost_usd REAL, doubt REAL NOT NULL, suspicion REAL,
    feedback TEXT NOT NULL, is_valid INTEGER NOT NULL, is_disputed INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL,          -- in the random order
    question BLOB);                     -- sealed, where the file's content is
CREATE UNIQUE INDEX answer_row_carrier ON answer_row (trace_id, tenant, carrier);
CREATE INDEX answer_row_time ON answer_row (time_ns);
CREATE INDEX answer_row_tenant ON answer_row (tenant, time_ns);
CREATE INDEX answer_row_release ON answer_row (service, service_version, prompt_version, time_ns)
    WHERE is_valid = 1;
CREATE INDEX answer_row_position ON answer_row (position);
CREATE INDEX answer_row_cost ON answer_row (cost_usd) WHERE is_valid = 1 AND cost_usd IS NOT NULL;
CREATE INDEX answer_row_doubt ON answer_row (is_disputed, doubt, id) WHERE is_valid = 1;
CREATE INDEX answer_row_suspicion ON answer_row (suspicion) WHERE is_valid = 1 AND suspicion IS NOT NULL;
CREATE INDEX answer_row_session ON answer_row (session, tenant, time_ns) WHERE is_valid = 1 AND session != '';
CREATE INDEX answer_row_feedback ON answer_row (time_ns, feedback) WHERE feedback != '';
CREATE TABLE answer_score (
    answer INTEGER NOT NULL, metric TEXT NOT NULL, label TEXT NOT NULL, score REAL,
    is_lower_better INTEGER NOT NULL,
    PRIMARY KEY (answer, metric)) WITHOUT ROWID;
CREATE INDEX answer_score_order ON answer_score (metric, score, answer);
CREATE TABLE answer_feedback (          -- on answers that are not here yet
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    feedback TEXT NOT NULL);
CREATE UNIQUE INDEX answer_feedback_key ON answer_feedback (trace_id, span_id, tenant);
CREATE TABLE answer_session (           -- judged sessions; told: the summary without texts, as JSON
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, tenant TEXT NOT NULL, span_id TEXT NOT NULL,
    supersedes TEXT NOT NULL, time_ns INTEGER NOT NULL, label TEXT NOT NULL, is_valid INTEGER NOT NULL,
    told TEXT NOT NULL);
CREATE UNIQUE INDEX answer_session_span ON answer_session (session, tenant, span_id);
CREATE INDEX answer_session_time ON answer_session (time_ns);
"""


POSITIONS: Final = 2**48
MOST_VERSIONS: Final = 256
"""Evaluations of the answers of a trace that are looked at."""
FEEDBACKS: Final = ("up", "down")

_NAMES: Final = (
    *("service", "service_version", "model", "prompt_version", "session", "pipeline", "reason", "blame"),
    *("judge", "evaluator_version", "rule"),
)
_NUMBERS: Final = ("probability", "cost_usd", "doubt", "suspicion")
_CLAIMS: Final = ("supported", "contradicted", "unsupported", "unjudged")
_CHUNKS: Final = ("relevant", "partly_relevant", "irrelevant")
_COLUMNS: Final = (
    *("time_ns", "judged_ns", "trace_id", "span_id", "tenant", "carrier", "supersedes", "label"),
    *(*_NAMES, *_NUMBERS, *_CLAIMS, *_CHUNKS, "unjudged_chunks", "position", "question"),
    *("feedback", "is_valid"),
)
_READ: Final = ("id", *_COLUMNS, "is_disputed")

Row = Mapping[str, Any]
"""A row of ``answer_row`` by column."""
Seal = Callable[[bytes, str], bytes]
"""Encrypts a text for its place, or decrypts it; what cannot be decrypted is empty."""


def as_it_is(text: bytes, place: str) -> bytes:
    """Return a text, in a file without encryption."""
    return text


class Score(NamedTuple):
    """A row of ``answer_score`` without its answer."""

    metric: str
    label: str
    score: float | None
    is_lower_better: int


def hex_of(text: str, digits: int) -> str:
    """Return an id in as many hexadecimal digits.

    Raises:
        ValueError: it is not hexadecimal.
    """
    return f"{int(text, 16) & 16**digits - 1:0{digits}x}"


def _position(trace_id: str, span_id: str) -> int:
    """Return an answer's place in the random order, which does not depend on when it came."""
    return int.from_bytes(hashlib.sha256(f"{trace_id}|{span_id}".encode()).digest()[:6])


def _row_of(summary: AnswerSummary, seal: Seal) -> dict[str, Any]:
    trace_id, span_id, tenant = _cleaned(summary.key)
    carrier, question = hex_of(summary.carrier_span_id, 16), clean(summary.question)
    return {
        "time_ns": min(max(summary.time_ns, 0), LATEST_NS),
        "judged_ns": min(max(summary.judged_ns, 0), LATEST_NS),
        "trace_id": trace_id,
        "span_id": span_id,
        "tenant": tenant,
        "carrier": carrier,
        "supersedes": _superseded(summary.supersedes, carrier),
        "label": summary.label.value,
        **{name: clean(getattr(summary, name)) for name in _NAMES},
        **{name: getattr(summary, name) for name in _NUMBERS},
        **{name: getattr(summary.claims, name) for name in _CLAIMS},
        **{name: getattr(summary.chunks, name) for name in _CHUNKS},
        "unjudged_chunks": summary.chunks.unjudged,
        "position": _position(trace_id, span_id),
        "question": seal(question.encode(), summary.key.trace_id) if question else None,
    }


def _cleaned(key: AnswerKey) -> tuple[str, str, str]:
    return hex_of(key.trace_id, 32), hex_of(key.span_id, 16), clean(key.tenant)


def _superseded(named: str, carrier: str) -> str:
    try:
        superseded = hex_of(named, 16) if len(named) == 16 else ""
    except ValueError:
        return ""
    return "" if superseded == carrier else superseded


def _scores_of(summary: AnswerSummary) -> list[Score]:
    found = {clean(metric.name): metric for metric in summary.metrics}
    return [
        Score(name, metric.label.value, metric.score, int(metric.direction is Direction.LOWER_IS_BETTER))
        for name, metric in found.items()
    ]


def rows_of(db: Db, condition: Condition) -> list[Row]:
    """Return rows with their ids."""
    found = db.execute(f"SELECT {', '.join(_READ)} FROM answer_row WHERE {condition.sql}", condition.values)
    return [dict(zip(_READ, values, strict=True)) for values in found.fetchall()]


def summaries(db: Db, ids: Sequence[int], unseal: Seal) -> list[AnswerSummary]:
    """Return what rows hold, in the order of their ids."""
    if not ids:
        return []
    among = f"IN ({', '.join('?' for _ in ids)})"
    scores: dict[int, list[Score]] = {number: [] for number in ids}
    found = db.execute(
        f"SELECT answer, {', '.join(Score._fields)} FROM answer_score WHERE answer {among}", (*ids,)
    )
    for number, *values in found.fetchall():
        scores[number].append(Score(*values))
    rows = {row["id"]: row for row in rows_of(db, Condition(f"id {among}", (*ids,)))}
    return [_summary(rows[number], scores[number], unseal) for number in ids]


def _summary(row: Row, scores: Sequence[Score], unseal: Seal) -> AnswerSummary:
    metrics = [
        MetricSummary(
            name=found.metric,
            label=Label(found.label),
            score=found.score,
            direction=Direction.LOWER_IS_BETTER if found.is_lower_better else Direction.HIGHER_IS_BETTER,
        )
        for found in scores
    ]
    as_they_are = ("time_ns", "judged_ns", "supersedes", "feedback", *_NAMES, *_NUMBERS)
    return AnswerSummary(
        key=AnswerKey(row["trace_id"], row["span_id"], row["tenant"]),
        carrier_span_id=row["carrier"],
        question=unseal(row["question"], row["trace_id"]).decode() if row["question"] else "",
        label=Label(row["label"]),
        metrics=tuple(sorted(metrics, key=lambda metric: first_faithfulness(metric.name))),
        claims=VerdictCounts(**{name: row[name] for name in _CLAIMS}),
        chunks=VerdictCounts(unjudged=row["unjudged_chunks"], **{name: row[name] for name in _CHUNKS}),
        is_disputed=row["is_disputed"] == 1,
        **{name: row[name] for name in as_they_are},
    )


_MOST_WAITING: Final = 100_000
"""Kept feedback on answers that are not here yet."""
_OF_ANSWER: Final = "trace_id = ? AND span_id = ? AND tenant = ?"
_OF_CARRIER: Final = "trace_id = ? AND carrier = ? AND tenant = ?"
_GIVEN: Final = _COLUMNS[:-2]
"""The columns that the summary alone tells."""
_PUT: Final = (
    f"INSERT INTO answer_row ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _GIVEN)},"
    f" coalesce(?, (SELECT feedback FROM answer_feedback WHERE {_OF_ANSWER}),"
    f" (SELECT max(feedback) FROM answer_row WHERE {_OF_ANSWER}), ''),"
    " CASE WHEN EXISTS (SELECT 1 FROM answer_row WHERE trace_id = ? AND supersedes = ? AND tenant = ?)"
    " THEN 0 ELSE 1 END) ON CONFLICT (trace_id, carrier, tenant) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name != "is_valid")
)
_PUT_SCORE: Final = (
    f"INSERT INTO answer_score (answer, {', '.join(Score._fields)})"
    f" SELECT id, {', '.join('?' for _ in Score._fields)} FROM answer_row WHERE {_OF_CARRIER}"
)


def put(db: Db, summary: AnswerSummary, seal: Seal = as_it_is) -> None:
    """Add an answer, or replace what its carrier said before.

    The evaluation that it supersedes leaves all counts and lists, whichever of the two comes first. No
    statement waits for what another one says.

    Raises:
        ValueError: an id of its key or its carrier is not hexadecimal.
    """
    row = _row_of(summary, seal)
    trace_id, span_id, tenant = row["trace_id"], row["span_id"], row["tenant"]
    answer, carrier = (trace_id, span_id, tenant), (trace_id, row["carrier"], tenant)
    feedback = summary.feedback if summary.feedback in FEEDBACKS else None
    db.execute(_PUT, (*(row[name] for name in _GIVEN), feedback, *answer, *answer, *carrier))
    db.execute(f"DELETE FROM answer_feedback WHERE {_OF_ANSWER}", answer)
    db.execute(
        f"DELETE FROM answer_score WHERE answer IN (SELECT id FROM answer_row WHERE {_OF_CARRIER})", carrier
    )
    db.executemany(_PUT_SCORE, [(*score, *carrier) for score in _scores_of(summary)])
    if row["supersedes"]:
        db.execute(
            f"UPDATE answer_row SET is_valid = 0 WHERE {_OF_CARRIER}", (trace_id, row["supersedes"], tenant)
        )
    _note_disputes(db, trace_id, tenant)


def _note_disputes(db: Db, trace_id: str, tenant: str) -> None:
    """Say of each evaluation in a trace whether valid ones of its answer pass and fail it."""
    beside = "FROM answer_row AS other WHERE other.trace_id = answer_row.trace_id AND other.tenant = ?"
    labels = (
        f"SELECT count(DISTINCT other.label) {beside} AND other.span_id = answer_row.span_id"
        " AND other.is_valid = 1 AND other.label IN ('pass', 'fail')"
    )
    db.execute(
        f"UPDATE answer_row SET is_disputed = CASE WHEN ({labels}) > 1 THEN is_valid ELSE 0 END"
        f" WHERE trace_id = ? AND tenant = ? AND EXISTS (SELECT 1 {beside} AND other.id != answer_row.id)",
        (tenant, trace_id, tenant, tenant),
    )


def note_feedback(db: Db, key: AnswerKey, feedback: str) -> None:
    """Note ``up`` or ``down`` on an answer, which may come later; the last feedback counts.

    Raises:
        ValueError: an id of the key is not hexadecimal.
    """
    told, answer = feedback if feedback in FEEDBACKS else "", _cleaned(key)
    changed = db.execute(f"UPDATE answer_row SET feedback = ? WHERE {_OF_ANSWER}", (told, *answer))
    if not changed.rowcount:
        db.execute(
            "INSERT INTO answer_feedback (trace_id, span_id, tenant, feedback) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (trace_id, span_id, tenant) DO UPDATE SET feedback = excluded.feedback",
            (*answer, told),
        )


def forget(db: Db, *, before_ns: int, most_rows: int, at_once: int) -> list[Row]:
    """Delete the oldest answers: those from before a time, and those beyond a number; sessions go with them.

    Returns:
        The answers that it deleted: at most ``at_once``, so that a transaction stays short. Call it again
        until they are less.
    """
    surplus = min(max(0, size(db) - most_rows), at_once)
    gone = _oldest(db, before_ns=before_ns, limit=at_once)
    if len(gone) < surplus:
        gone = _oldest(db, before_ns=LATEST_NS, limit=surplus)
    ids = [(row["id"],) for row in gone]
    db.executemany("DELETE FROM answer_score WHERE answer = ?", ids)
    db.executemany("DELETE FROM answer_row WHERE id = ?", ids)
    for row in gone:
        if row["is_disputed"]:
            _note_disputes(db, row["trace_id"], row["tenant"])
    (oldest_ns,) = db.execute("SELECT min(time_ns) FROM answer_row").fetchone()
    db.execute(
        "DELETE FROM answer_session WHERE id IN"
        " (SELECT id FROM answer_session WHERE time_ns < ? ORDER BY time_ns LIMIT ?)",
        (LATEST_NS if oldest_ns is None else max(oldest_ns, min(before_ns, LATEST_NS)), at_once),
    )
    db.execute(
        "DELETE FROM answer_feedback WHERE id <="
        " (SELECT id FROM answer_feedback ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (_MOST_WAITING,),
    )
    return gone


def _oldest(db: Db, *, before_ns: int, limit: int) -> list[Row]:
    oldest = Condition("time_ns < ? ORDER BY time_ns, id LIMIT ?", (min(before_ns, LATEST_NS), limit))
    return rows_of(db, oldest)


def size(db: Db) -> int:
    """Return the number of rows, with those of superseded evaluations."""
    (rows,) = db.execute("SELECT count(*) FROM answer_row").fetchone()
    return int(rows)


_MOST_UNDER_ID: Final = 50
_SESSION_COLUMNS: Final = ("session", "tenant", "span_id", "supersedes", "time_ns", "label", "told")
_PUT_SESSION: Final = (
    f"INSERT INTO answer_session ({', '.join(_SESSION_COLUMNS)}, is_valid)"
    f" VALUES ({', '.join('?' for _ in _SESSION_COLUMNS)}, CASE WHEN EXISTS (SELECT 1 FROM answer_session"
    " WHERE session = ? AND tenant = ? AND supersedes = ?) THEN 0 ELSE 1 END)"
    " ON CONFLICT (session, tenant, span_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in (*_SESSION_COLUMNS, "is_valid"))
)


def put_session(db: Db, summary: SessionSummary) -> None:
    """Add a session; what its span supersedes counts no longer, whichever of the two comes first."""
    named, label = (clean(summary.session), clean(summary.tenant)), summary.label.value
    told = to_json(summary).decode()
    row = (summary.span_id, summary.supersedes, min(summary.time_ns, LATEST_NS), label, told)
    db.execute(_PUT_SESSION, (*named, *row, *named, summary.span_id))
    if summary.supersedes:
        db.execute(
            "UPDATE answer_session SET is_valid = 0 WHERE session = ? AND tenant = ? AND span_id = ?",
            (*named, summary.supersedes),
        )


def session_page(
    db: Db, *, tenant: str | None, label: Label | None, after: str | None, limit: int
) -> SessionPage:
    """Return a page of sessions, the most recent first; with a label, of those that were judged so.

    Raises:
        InputError: the cursor is none.
    """
    judged = Condition("is_valid = 1").and_(
        Condition("tenant = ?", (clean(tenant),)) if tenant is not None else Condition(),
        Condition("label = ?", (label.value,)) if label is not None else Condition(),
    )
    tables = {"answer_session": judged}
    if label is None:
        tables["answer_row"] = judged.and_(Condition("session != ''"))
    each = (f"SELECT session, tenant, time_ns FROM {name} WHERE {of.sql}" for name, of in tables.items())
    place = (LATEST_NS, "", "") if after is None else _place(after)
    found = db.execute(
        f"SELECT max(time_ns), session, tenant FROM ({' UNION ALL '.join(each)}) AS each"
        " GROUP BY session, tenant HAVING (max(time_ns), session, tenant) < (?, ?, ?)"
        " ORDER BY max(time_ns) DESC, session DESC, tenant DESC LIMIT ?",
        (*(value for of in tables.values() for value in of.values), *place, limit + 1),
    ).fetchall()
    has_more = len(found) > limit
    return SessionPage(
        sessions=tuple(SessionKey(session, owner) for _, session, owner in found[:limit]),
        next=to_json(found[limit - 1]).decode() if has_more else None,
    )


def _place(cursor: str) -> tuple[int, str, str]:
    try:
        time_ns, session, tenant = json.loads(cursor)
        return min(int(time_ns), LATEST_NS), str(session), str(tenant)
    except (ValueError, TypeError, RecursionError):
        raise InputError("this is not a place in the list of sessions: begin at the first page") from None


def judged_sessions(db: Db, session: str, tenant: str | None) -> Sequence[SessionSummary]:
    """Return the valid sessions under an id, the newest first."""
    named = Condition("session = ?", (clean(session),))
    if tenant is not None:
        named = named.and_(Condition("tenant = ?", (clean(tenant),)))
    rows = db.execute(
        f"SELECT told FROM answer_session WHERE {named.sql} AND is_valid = 1"
        " ORDER BY time_ns DESC, id DESC LIMIT ?",
        (*named.values, _MOST_UNDER_ID),
    )
    return [from_json(SessionSummary, told.encode()) for (told,) in rows.fetchall()]
