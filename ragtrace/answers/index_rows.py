"""The index of judged answers in SQL: its tables, its rows without content, and what keeps them.

Every function here runs inside a transaction of whoever owns the file; `ragtrace.answers.index.AnswerIndex`
searches what they keep.

**Retention.** `forget` takes answers out of the rows and of the sums alike: an overview always speaks of the
answers that the lists have, and no trend outlives its rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.answers.filters import Condition, clean, streams_in
from ragtrace.answers.port import SessionKey, SessionPage, TrafficScope
from ragtrace.answers.summary import (
    AnswerKey,
    AnswerSummary,
    FaultKind,
    MetricSummary,
    SessionFault,
    SessionSummary,
    first_faithfulness,
)
from ragtrace.answers.sums import touch
from ragtrace.errors import InputError
from ragtrace.model import Direction, Label, VerdictCounts
from ragtrace.sql import Db, Rows

INDEX_TABLES: Final = """
CREATE TABLE answer_stream (            -- where answers come from
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, service TEXT NOT NULL, model TEXT NOT NULL,
    prompt_version TEXT NOT NULL, service_version TEXT NOT NULL);
CREATE UNIQUE INDEX answer_stream_names
    ON answer_stream (tenant, service, model, prompt_version, service_version);
CREATE TABLE answer_row (
    id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, judged_ns INTEGER NOT NULL,
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    carrier TEXT NOT NULL, supersedes TEXT NOT NULL,
    stream INTEGER NOT NULL, session TEXT NOT NULL, pipeline TEXT NOT NULL,
    label TEXT NOT NULL, reason TEXT NOT NULL, blame TEXT NOT NULL,
    judge TEXT NOT NULL, evaluator_version TEXT NOT NULL, rule TEXT NOT NULL,
    supported INTEGER NOT NULL, contradicted INTEGER NOT NULL, unsupported INTEGER NOT NULL,
    unjudged INTEGER NOT NULL, relevant INTEGER NOT NULL, partly_relevant INTEGER NOT NULL,
    irrelevant INTEGER NOT NULL, unjudged_chunks INTEGER NOT NULL,
    probability REAL, cost_usd REAL, doubt REAL NOT NULL, suspicion REAL,
    feedback TEXT NOT NULL, is_valid INTEGER NOT NULL, is_disputed INTEGER NOT NULL,
    position INTEGER NOT NULL,          -- in the random order
    question BLOB);                     -- sealed, where the file's content is
CREATE INDEX answer_row_time ON answer_row (time_ns);
CREATE INDEX answer_row_stream ON answer_row (stream, time_ns);
CREATE INDEX answer_row_trace ON answer_row (trace_id, carrier);
CREATE INDEX answer_row_supersedes ON answer_row (trace_id, supersedes) WHERE supersedes != '';
CREATE INDEX answer_row_position ON answer_row (position);
CREATE INDEX answer_row_cost ON answer_row (cost_usd) WHERE is_valid = 1 AND cost_usd IS NOT NULL;
CREATE INDEX answer_row_doubt ON answer_row (is_disputed, doubt, id) WHERE is_valid = 1;
CREATE INDEX answer_row_suspicion ON answer_row (suspicion) WHERE is_valid = 1 AND suspicion IS NOT NULL;
CREATE INDEX answer_row_session ON answer_row (session, id) WHERE session != '';
CREATE INDEX answer_row_conversation ON answer_row (time_ns) WHERE is_valid = 1 AND session != '';
CREATE INDEX answer_row_feedback ON answer_row (time_ns, feedback) WHERE feedback != '';
CREATE TABLE answer_score (
    answer INTEGER NOT NULL, metric TEXT NOT NULL, label TEXT NOT NULL, score REAL,
    is_lower_better INTEGER NOT NULL,
    PRIMARY KEY (answer, metric)) WITHOUT ROWID;
CREATE INDEX answer_score_order ON answer_score (metric, label, score, answer);
CREATE TABLE answer_feedback (          -- on answers that are not here yet
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    feedback TEXT NOT NULL);
CREATE UNIQUE INDEX answer_feedback_key ON answer_feedback (trace_id, span_id, tenant);
CREATE TABLE answer_session (           -- judged sessions; faults: a JSON list without texts
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, tenant TEXT NOT NULL, trace_id TEXT NOT NULL,
    answer_span_id TEXT NOT NULL, span_id TEXT NOT NULL, supersedes TEXT NOT NULL, time_ns INTEGER NOT NULL,
    label TEXT NOT NULL, turns INTEGER NOT NULL, decided INTEGER NOT NULL, faithful INTEGER NOT NULL,
    contradictions INTEGER NOT NULL, repeated INTEGER NOT NULL, corrections INTEGER NOT NULL,
    unchecked INTEGER NOT NULL, faults TEXT NOT NULL, is_valid INTEGER NOT NULL);
CREATE UNIQUE INDEX answer_session_span ON answer_session (session, tenant, span_id);
CREATE INDEX answer_session_time ON answer_session (time_ns);
CREATE TABLE answer_touched (           -- hours (hours = 1) and days (hours = 24) whose sums do not hold
    hours INTEGER NOT NULL, first_hour INTEGER NOT NULL, writer INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (hours, first_hour, writer)) WITHOUT ROWID;
CREATE TABLE answer_sum (               -- valid rows of an hour or of a day, in UTC
    hours INTEGER NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL,
    passed INTEGER NOT NULL, failed INTEGER NOT NULL, error INTEGER NOT NULL, skipped INTEGER NOT NULL,
    supported INTEGER NOT NULL, contradicted INTEGER NOT NULL, unsupported INTEGER NOT NULL,
    unjudged INTEGER NOT NULL, relevant INTEGER NOT NULL, partly_relevant INTEGER NOT NULL,
    irrelevant INTEGER NOT NULL, unjudged_chunks INTEGER NOT NULL,
    healthy INTEGER NOT NULL, generation_problem INTEGER NOT NULL,
    retrieval_noise INTEGER NOT NULL, retrieval_failure INTEGER NOT NULL,
    cost_usd REAL NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (hours, first_hour, stream)) WITHOUT ROWID;
CREATE TABLE answer_cause_sum (         -- the same, by cause: blame:… or reason:…
    hours INTEGER NOT NULL, cause TEXT NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL,
    PRIMARY KEY (hours, cause, first_hour, stream)) WITHOUT ROWID;
CREATE TABLE answer_metric_sum (        -- the same, by metric; weights are one over the probability
    hours INTEGER NOT NULL, metric TEXT NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL, weighed INTEGER NOT NULL, left_out INTEGER NOT NULL,
    weight REAL NOT NULL, score REAL NOT NULL, passing REAL NOT NULL, weight_weight REAL NOT NULL,
    weight_score REAL NOT NULL, score_score REAL NOT NULL,
    weight_passing REAL NOT NULL, passing_passing REAL NOT NULL,
    PRIMARY KEY (hours, metric, first_hour, stream)) WITHOUT ROWID;
"""


OTHERS: Final = "(others)"
"""In place of all names of a kind beyond the bound."""
MOST_NAMES: Final = 1_000
"""Of a kind. Names that no answer has any more make room."""
MOST_STREAMS: Final = 5_000

_STREAM_NAMES: Final = ("tenant", "service", "model", "prompt_version", "service_version")
_KEY: Final = ", ".join(_STREAM_NAMES)
FIND_STREAM: Final = (
    f"SELECT id FROM answer_stream WHERE {' AND '.join(f'{name} = ?' for name in _STREAM_NAMES)}"
)


def names_of(summary: AnswerSummary) -> tuple[str, ...]:
    """Return the names of where an answer comes from, its tenant first."""
    given = (summary.key.tenant, summary.service, summary.model)
    return tuple(clean(text) for text in (*given, summary.prompt_version, summary.service_version))


def stream_of(db: Db, names: tuple[str, ...], known: Rows) -> tuple[int, str]:
    """Return the number of where an answer comes from, which may be new, and the tenant under which it is.

    ``known`` has what `FIND_STREAM` found.
    """
    found = known.fetchone()
    if found is not None:
        return int(found[0]), names[0]
    tenant, *others = (_bounded(db, kind, text) for kind, text in zip(_STREAM_NAMES, names, strict=True))
    (streams,) = db.execute("SELECT count(*) FROM answer_stream").fetchone()
    if streams >= MOST_STREAMS:  # then it is told by its tenant alone, so that none sees another's answers
        others = [OTHERS, OTHERS, OTHERS, ""]
    # a name is set to itself, so that the row is returned though it is known
    ((number,),) = db.execute(
        f"INSERT INTO answer_stream ({_KEY}) VALUES (?, ?, ?, ?, ?)"
        f" ON CONFLICT ({_KEY}) DO UPDATE SET tenant = excluded.tenant RETURNING id",
        (tenant, *others),
    ).fetchall()
    return int(number), tenant


def tenant_in(db: Db, tenant: str) -> str:
    """Return the tenant under which a tenant's answers are, if there are any."""
    return _bounded(db, "tenant", clean(tenant))


def _bounded(db: Db, kind: str, text: str) -> str:
    if not text or db.execute(f"SELECT 1 FROM answer_stream WHERE {kind} = ? LIMIT 1", (text,)).fetchone():
        return text
    (names,) = db.execute(
        f"SELECT count(DISTINCT {kind}) FROM answer_stream WHERE {kind} != ?", (OTHERS,)
    ).fetchone()
    return text if names < MOST_NAMES else OTHERS


POSITIONS: Final = 2**48
LATEST_NS: Final = 2**63 - 1
MOST_VERSIONS: Final = 256
"""Evaluations of an answer that are looked at."""
FEEDBACKS: Final = ("up", "down")

_TEXTS: Final = ("session", "pipeline", "reason", "blame", "judge", "evaluator_version", "rule")
_NUMBERS: Final = ("probability", "cost_usd", "doubt", "suspicion")
_CLAIMS: Final = ("supported", "contradicted", "unsupported", "unjudged")
_CHUNKS: Final = ("relevant", "partly_relevant", "irrelevant")
_NAMES: Final = ("service", "service_version", "model", "prompt_version")
COLUMNS: Final = (
    *("time_ns", "judged_ns", "trace_id", "span_id", "tenant", "carrier", "supersedes", "stream", "label"),
    *(*_TEXTS, *_NUMBERS, *_CLAIMS, *_CHUNKS, "unjudged_chunks"),
    *("feedback", "is_valid", "is_disputed", "position", "question"),
)

Row = Mapping[str, Any]
"""A row of ``answer_row`` by column; its ``id``, if it is in the table."""
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


def of_answer(trace_id: str, span_id: str, tenant: str) -> Condition:
    """Return the condition to be an evaluation of an answer.

    Raises:
        ValueError: an id is not hexadecimal.
    """
    ids = hex_of(trace_id, 32), hex_of(span_id, 16)
    return Condition(
        "position = ? AND trace_id = ? AND span_id = ? AND tenant = ?", (_position(*ids), *ids, tenant)
    )


def of_row(row: Row) -> Condition:
    """Return the condition to be an evaluation of the same answer."""
    return of_answer(row["trace_id"], row["span_id"], row["tenant"])


def hex_of(text: str, digits: int) -> str:
    """Return an id in as many hexadecimal digits.

    Raises:
        ValueError: it is not hexadecimal.
    """
    return f"{int(text, 16) & 16**digits - 1:0{digits}x}"


def _position(trace_id: str, span_id: str) -> int:
    """Return an answer's place in the random order, which does not depend on when it came."""
    return int.from_bytes(hashlib.sha256(f"{trace_id}|{span_id}".encode()).digest()[:6])


def row_of(summary: AnswerSummary, *, tenant: str, stream: int, seal: Seal) -> Row:
    """Return a new, valid row.

    Raises:
        ValueError: an id of its key or its carrier is not hexadecimal.
    """
    trace_id, span_id = hex_of(summary.key.trace_id, 32), hex_of(summary.key.span_id, 16)
    carrier, question = hex_of(summary.carrier_span_id, 16), clean(summary.question)
    return {
        "time_ns": min(max(summary.time_ns, 0), LATEST_NS),
        "judged_ns": min(max(summary.judged_ns, 0), LATEST_NS),
        "trace_id": trace_id,
        "span_id": span_id,
        "tenant": tenant,
        "carrier": carrier,
        "supersedes": _superseded(summary.supersedes, carrier),
        "stream": stream,
        "label": summary.label.value,
        **{name: clean(getattr(summary, name)) for name in _TEXTS},
        **{name: getattr(summary, name) for name in _NUMBERS},
        **{name: getattr(summary.claims, name) for name in _CLAIMS},
        **{name: getattr(summary.chunks, name) for name in _CHUNKS},
        "unjudged_chunks": summary.chunks.unjudged,
        "feedback": summary.feedback if summary.feedback in FEEDBACKS else "",
        "is_valid": 1,
        "is_disputed": 0,
        "position": _position(trace_id, span_id),
        "question": seal(question.encode(), summary.key.trace_id) if question else None,
    }


def _superseded(named: str, carrier: str) -> str:
    try:
        superseded = hex_of(named, 16) if len(named) == 16 else ""
    except ValueError:
        return ""
    return "" if superseded == carrier else superseded


def scores_of(summary: AnswerSummary) -> list[Score]:
    """Return the scores of an answer, in order of their metrics."""
    found = {clean(metric.name): metric for metric in summary.metrics}
    return [
        Score(name, metric.label.value, metric.score, int(metric.direction is Direction.LOWER_IS_BETTER))
        for name, metric in sorted(found.items())
    ]


def rows_of(db: Db, condition: Condition) -> list[Row]:
    """Return rows with their ids."""
    names = ("id", *COLUMNS)
    found = db.execute(f"SELECT {', '.join(names)} FROM answer_row WHERE {condition.sql}", condition.values)
    return [dict(zip(names, values, strict=True)) for values in found]


def scores_by_id(db: Db, ids: Sequence[int]) -> dict[int, list[Score]]:
    """Return the scores of rows, in order of their metrics."""
    found: dict[int, list[Score]] = {number: [] for number in ids}
    rows = db.execute(
        f"SELECT answer, {', '.join(Score._fields)} FROM answer_score"
        f" WHERE answer IN ({', '.join('?' for _ in ids)}) ORDER BY answer, metric",
        (*ids,),
    )
    for number, *values in rows:
        found[number].append(Score(*values))
    return found


def summaries(db: Db, ids: Sequence[int], unseal: Seal) -> list[AnswerSummary]:
    """Return what rows hold, in the order of their ids."""
    if not ids:
        return []
    names = ("id", *_NAMES, *COLUMNS)
    columns = ", ".join(f"answer_{'stream' if name in _NAMES else 'row'}.{name}" for name in names)
    found = db.execute(
        f"SELECT {columns} FROM answer_row JOIN answer_stream ON answer_stream.id = stream"
        f" WHERE answer_row.id IN ({', '.join('?' for _ in ids)})",
        (*ids,),
    )
    scores = scores_by_id(db, ids)
    told = {values[0]: _summary(dict(zip(names, values, strict=True)), scores, unseal) for values in found}
    return [told[number] for number in ids]


def _summary(row: Row, scores: Mapping[int, Sequence[Score]], unseal: Seal) -> AnswerSummary:
    metrics = [
        MetricSummary(
            name=found.metric,
            label=Label(found.label),
            score=found.score,
            direction=Direction.LOWER_IS_BETTER if found.is_lower_better else Direction.HIGHER_IS_BETTER,
        )
        for found in scores[row["id"]]
    ]
    as_they_are = ("time_ns", "judged_ns", "supersedes", "feedback", *_NAMES, *_TEXTS, *_NUMBERS)
    return AnswerSummary(
        key=AnswerKey(row["trace_id"], row["span_id"], row["tenant"]),
        carrier_span_id=row["carrier"],
        question=unseal(row["question"], row["trace_id"]).decode() if row["question"] else "",
        label=Label(row["label"]),
        metrics=tuple(sorted(metrics, key=lambda metric: first_faithfulness(metric.name))),
        claims=VerdictCounts(**{name: row[name] for name in _CLAIMS}),
        chunks=VerdictCounts(unjudged=row["unjudged_chunks"], **{name: row[name] for name in _CHUNKS}),
        is_disputed=row["is_disputed"] == 1 and row["is_valid"] == 1,
        **{name: row[name] for name in as_they_are},
    )


_MOST_WAITING: Final = 100_000
"""Kept feedback on answers that are not here yet."""


def put(db: Db, summary: AnswerSummary, seal: Seal = as_it_is) -> None:
    """Add an answer, or replace what its carrier said before.

    The evaluation that it supersedes leaves all counts and lists, whichever of the two comes first.

    Raises:
        ValueError: an id of its key or its carrier is not hexadecimal.
    """
    names, key = names_of(summary), _waiting_key(summary.key)
    known = db.execute(FIND_STREAM, names)
    of_trace = db.execute("SELECT 1 FROM answer_row WHERE trace_id = ? LIMIT 1", (key[0],))
    waiting, others = db.execute(_WAITING, key).fetchall(), of_trace.fetchone()
    stream, tenant = stream_of(db, names, known)
    row, scores = row_of(summary, tenant=tenant, stream=stream, seal=seal), scores_of(summary)
    if waiting:
        db.execute("DELETE FROM answer_feedback WHERE trace_id = ? AND span_id = ? AND tenant = ?", key)
    feedback = row["feedback"] or next((str(told) for (told,) in waiting), "")
    if others is None:  # as most are: then there is nothing to compare it with
        _insert(db, {**row, "feedback": feedback}, scores)
        return
    row = {**row, "feedback": feedback or _feedback_before(db, row), "is_valid": int(_is_last(db, row))}
    before = rows_of(db, _of_carrier(row, row["carrier"]))
    for there in before:
        row = {**row, "is_valid": there["is_valid"]}
        is_same = there == {
            **row,
            "id": there["id"],
            "is_disputed": there["is_disputed"],
            "question": there["question"],
        }
        if is_same and scores_by_id(db, [there["id"]])[there["id"]] == scores:
            return
    _insert(db, row, scores)
    _delete(db, before)  # now, so that their stream stays
    if row["supersedes"]:
        old = rows_of(db, _of_carrier(row, row["supersedes"]))
        db.executemany("UPDATE answer_row SET is_valid = 0 WHERE id = ?", [(each["id"],) for each in old])
        _note_gone(db, old)
    _note_dispute(db, of_row(row))


def _insert(db: Db, row: Row, scores: list[Score]) -> None:
    db.execute(_INSERT, [row[name] for name in COLUMNS])
    this = (row["trace_id"], row["carrier"], row["tenant"])
    db.executemany(_INSERT_SCORE, [(*score, *this) for score in scores])
    touch(db, [row["time_ns"]])


def _marks(names: Sequence[str]) -> str:
    return f"({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})"


_INSERT: Final = f"INSERT INTO answer_row {_marks(COLUMNS)}"
# The row is named by what it is, since to wait for its number would cost a round trip.
_INSERT_SCORE: Final = (
    f"INSERT INTO answer_score (answer, {', '.join(Score._fields)})"
    f" SELECT max(id), {', '.join('?' for _ in Score._fields)} FROM answer_row"
    " WHERE trace_id = ? AND carrier = ? AND tenant = ?"
)


def _delete(db: Db, rows: Sequence[Row]) -> None:
    """Delete rows, and the streams that no row has any more."""
    ids = [(row["id"],) for row in rows]
    db.executemany("DELETE FROM answer_score WHERE answer = ?", ids)
    db.executemany("DELETE FROM answer_row WHERE id = ?", ids)
    _note_gone(db, rows)
    db.executemany(
        "DELETE FROM answer_stream WHERE id = ?"
        " AND NOT EXISTS (SELECT 1 FROM answer_row WHERE stream = answer_stream.id)",
        [(stream,) for stream in {row["stream"] for row in rows}],
    )


def _note_gone(db: Db, rows: Sequence[Row]) -> None:
    touch(db, (row["time_ns"] for row in rows))
    for row in rows:
        if row["is_disputed"]:
            _note_dispute(db, of_row(row))


def _of_carrier(row: Row, carrier: str) -> Condition:
    """Return the condition to be of a carrier in the trace and of the tenant of another row."""
    return Condition("trace_id = ? AND carrier = ? AND tenant = ?", (row["trace_id"], carrier, row["tenant"]))


def _is_last(db: Db, row: Row) -> bool:
    """Return whether no evaluation that is here supersedes this one."""
    found = db.execute(
        "SELECT 1 FROM answer_row WHERE trace_id = ? AND supersedes = ? AND supersedes != '' AND tenant = ?"
        " LIMIT 1",
        (row["trace_id"], row["carrier"], row["tenant"]),
    )
    return found.fetchone() is None


def _note_dispute(db: Db, answer: Condition) -> None:
    """Say of all valid evaluations of an answer whether one passes and another fails."""
    same = f"{answer.sql} AND is_valid = 1"
    labels = f"SELECT count(DISTINCT label) FROM answer_row WHERE {same} AND label IN ('pass', 'fail')"
    db.execute(
        f"UPDATE answer_row SET is_disputed = CASE WHEN ({labels}) > 1 THEN 1 ELSE 0 END WHERE {same}",
        (*answer.values, *answer.values),
    )


def note_feedback(db: Db, key: AnswerKey, feedback: str) -> None:
    """Note ``up`` or ``down`` on an answer, which may come later; the last feedback counts.

    Raises:
        ValueError: an id of the key is not hexadecimal.
    """
    told = feedback if feedback in FEEDBACKS else ""
    answer = of_answer(key.trace_id, key.span_id, tenant_in(db, key.tenant))
    changed = db.execute(f"UPDATE answer_row SET feedback = ? WHERE {answer.sql}", (told, *answer.values))
    if not changed.rowcount:
        db.execute(
            "INSERT INTO answer_feedback (trace_id, span_id, tenant, feedback) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (trace_id, span_id, tenant) DO UPDATE SET feedback = excluded.feedback",
            (*_waiting_key(key), told),
        )


def _waiting_key(key: AnswerKey) -> tuple[str, str, str]:
    return hex_of(key.trace_id, 32), hex_of(key.span_id, 16), clean(key.tenant)


_WAITING: Final = "SELECT feedback FROM answer_feedback WHERE trace_id = ? AND span_id = ? AND tenant = ?"


def _feedback_before(db: Db, row: Row) -> str:
    """Return the feedback on other evaluations of the answer."""
    answer = of_row(row)
    query = f"SELECT feedback FROM answer_row WHERE {answer.sql} AND feedback != '' LIMIT 1"
    found = db.execute(query, answer.values).fetchone()
    return str(found[0]) if found else ""


def forget(db: Db, *, before_ns: int, most_rows: int, at_once: int) -> list[Row]:
    """Delete the oldest answers: those from before a time, and those beyond a number; sessions go with them.

    Returns:
        The answers that it deleted: at most ``at_once``, so that a transaction stays short. Call it again
        until they are less.
    """
    surplus = min(max(0, size(db) - most_rows), at_once)
    gone = _oldest(db, before_ns=before_ns, limit=at_once)
    if len(gone) < surplus:
        gone = _oldest(db, before_ns=LATEST_NS + 1, limit=surplus)
    _delete(db, gone)
    (oldest_ns,) = db.execute("SELECT min(time_ns) FROM answer_row").fetchone()
    forget_sessions(
        db, before_ns=LATEST_NS if oldest_ns is None else max(oldest_ns, before_ns), at_once=at_once
    )
    db.execute(
        "DELETE FROM answer_feedback WHERE id <="
        " (SELECT id FROM answer_feedback ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (_MOST_WAITING,),
    )
    return gone


def _oldest(db: Db, *, before_ns: int, limit: int) -> list[Row]:
    bounds = (min(before_ns - 1, LATEST_NS), limit)
    return rows_of(db, Condition("time_ns <= ? ORDER BY time_ns, id LIMIT ?", bounds))


def size(db: Db) -> int:
    """Return the number of rows, with those of superseded evaluations."""
    (rows,) = db.execute("SELECT count(*) FROM answer_row").fetchone()
    return int(rows)


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


def put_session(db: Db, summary: SessionSummary) -> None:
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


def forget_sessions(db: Db, *, before_ns: int, at_once: int) -> None:
    """Delete the oldest sessions from before a time."""
    db.execute(
        "DELETE FROM answer_session WHERE id IN"
        " (SELECT id FROM answer_session WHERE time_ns < ? ORDER BY time_ns LIMIT ?)",
        (min(before_ns, 2**63 - 1), at_once),
    )


def session_page(
    db: Db, *, tenant: str | None, label: Label | None, after: str | None, limit: int
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
    db: Db, tenant: str | None, place: _Place, limit: int
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
    db: Db, tenant: str | None, label: Label | None, place: _Place, limit: int
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


def judged_sessions(db: Db, session: str, tenant: str | None) -> Sequence[SessionSummary]:
    """Return the valid sessions under an id, the newest first."""
    of_tenant = _of_tenant(tenant)
    rows = db.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM answer_session WHERE session = ?{of_tenant.sql}"
        " AND is_valid = 1 ORDER BY time_ns DESC, id DESC LIMIT ?",
        (clean(session), *of_tenant.values, MOST_UNDER_ID),
    )
    return [_session_of(row) for row in rows.fetchall()]


def _session_of(row: Sequence[Any]) -> SessionSummary:
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
