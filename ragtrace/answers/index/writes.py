"""Keeping the index: every function here runs inside a transaction of whoever owns the file.

**Retention.** `forget` takes answers out of the rows and of the sums alike: an overview always speaks of the
answers that the lists have, and no trend outlives its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ragtrace.answers.index._filter import Condition, clean
from ragtrace.answers.index._rows import (
    COLUMNS,
    FEEDBACKS,
    FIND_STREAM,
    LATEST_NS,
    Row,
    Score,
    Seal,
    as_it_is,
    hex_of,
    names_of,
    of_answer,
    of_row,
    row_of,
    rows_of,
    scores_by_id,
    scores_of,
    stream_of,
    tenant_in,
)
from ragtrace.answers.index.sessions import forget_sessions
from ragtrace.answers.index.sums import touch
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.sql import Rows, Statements

_MOST_WAITING: Final = 100_000
"""Kept feedback on answers that are not here yet."""


class Known(NamedTuple):
    """What the index knows of an answer before it is put there."""

    names: tuple[str, ...]
    stream: Rows
    others: Rows
    """Of its trace."""
    feedback: Rows
    """Feedback that waits for it."""


def ask(db: Statements, summary: AnswerSummary) -> Known:
    """Ask what `put` looks at, some time before it.

    Raises:
        ValueError: an id of its key is not hexadecimal.
    """
    names, trace_id = names_of(summary), hex_of(summary.key.trace_id, 32)
    return Known(
        names=names,
        stream=db.execute(FIND_STREAM, names),
        others=db.execute("SELECT 1 FROM answer_row WHERE trace_id = ? LIMIT 1", (trace_id,)),
        feedback=db.execute(_WAITING, _waiting_key(summary.key)),
    )


def put(db: Statements, summary: AnswerSummary, seal: Seal = as_it_is, known: Known | None = None) -> None:
    """Add an answer, or replace what its carrier said before.

    The evaluation that it supersedes leaves all counts and lists, whichever of the two comes first.

    Raises:
        ValueError: an id of its key or its carrier is not hexadecimal.
    """
    known = known or ask(db, summary)
    key, waiting, others = _waiting_key(summary.key), known.feedback.fetchall(), known.others.fetchone()
    stream, tenant = stream_of(db, known.names, known.stream)
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


def _insert(db: Statements, row: Row, scores: list[Score]) -> None:
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


def _delete(db: Statements, rows: Sequence[Row]) -> None:
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


def _note_gone(db: Statements, rows: Sequence[Row]) -> None:
    touch(db, (row["time_ns"] for row in rows))
    for row in rows:
        if row["is_disputed"]:
            _note_dispute(db, of_row(row))


def _of_carrier(row: Row, carrier: str) -> Condition:
    """Return the condition to be of a carrier in the trace and of the tenant of another row."""
    return Condition("trace_id = ? AND carrier = ? AND tenant = ?", (row["trace_id"], carrier, row["tenant"]))


def _is_last(db: Statements, row: Row) -> bool:
    """Return whether no evaluation that is here supersedes this one."""
    found = db.execute(
        "SELECT 1 FROM answer_row WHERE trace_id = ? AND supersedes = ? AND supersedes != '' AND tenant = ?"
        " LIMIT 1",
        (row["trace_id"], row["carrier"], row["tenant"]),
    )
    return found.fetchone() is None


def _note_dispute(db: Statements, answer: Condition) -> None:
    """Say of all valid evaluations of an answer whether one passes and another fails."""
    same = f"{answer.sql} AND is_valid = 1"
    labels = f"SELECT count(DISTINCT label) FROM answer_row WHERE {same} AND label IN ('pass', 'fail')"
    db.execute(
        f"UPDATE answer_row SET is_disputed = CASE WHEN ({labels}) > 1 THEN 1 ELSE 0 END WHERE {same}",
        (*answer.values, *answer.values),
    )


def note_feedback(db: Statements, key: AnswerKey, feedback: str) -> None:
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


def _feedback_before(db: Statements, row: Row) -> str:
    """Return the feedback on other evaluations of the answer."""
    answer = of_row(row)
    query = f"SELECT feedback FROM answer_row WHERE {answer.sql} AND feedback != '' LIMIT 1"
    found = db.execute(query, answer.values).fetchone()
    return str(found[0]) if found else ""


def forget(db: Statements, *, before_ns: int, most_rows: int, at_once: int) -> list[Row]:
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


def _oldest(db: Statements, *, before_ns: int, limit: int) -> list[Row]:
    bounds = (min(before_ns - 1, LATEST_NS), limit)
    return rows_of(db, Condition("time_ns <= ? ORDER BY time_ns, id LIMIT ?", bounds))


def size(db: Statements) -> int:
    """Return the number of rows, with those of superseded evaluations."""
    (rows,) = db.execute("SELECT count(*) FROM answer_row").fetchone()
    return int(rows)
