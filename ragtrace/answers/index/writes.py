"""Keeping the index: every function here runs inside a transaction of whoever owns the file.

**Retention.** `forget` takes answers out of the rows and of the sums alike: an overview always speaks of the
answers that the lists have, and no trend outlives its rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from ragtrace.answers.index import _sums
from ragtrace.answers.index._rows import (
    COLUMNS,
    DISPUTED,
    HOUR_NS,
    LABELS,
    IndexRow,
    Seal,
    as_it_is,
    feedback_number,
    hour_of,
    metrics_in,
    row_of,
    rows_of,
    select,
    versions_of,
)
from ragtrace.answers.index._words import (
    NameCache,
    Names,
    QuadrantMetrics,
    forget_unused,
    quadrant_metrics,
    tenant_number,
)
from ragtrace.answers.index.sessions import forget_sessions
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import Label

_MOST_TOGETHER: Final = 256
"""Answers of a trace that are summed together; further ones count as traces of their own."""
_MOST_WAITING: Final = 100_000
"""Kept feedback on answers that are not here yet."""


def put(
    db: sqlite3.Connection, summary: AnswerSummary, cache: NameCache | None = None, seal: Seal = as_it_is
) -> None:
    """Add an answer, or replace what its carrier said before.

    The evaluation that it supersedes leaves all counts and lists, whichever of the two comes first. The cache
    is the writer's own: it saves reading names again.

    Raises:
        ValueError: an id of its key or its carrier is not hexadecimal.
    """
    names = Names(db, cache or NameCache(), hour=hour_of(summary))
    row = row_of(summary, names, seal)
    if _is_first(db, row):  # as most are: then there is nothing to compare it with
        feedback = row.feedback or _waiting_feedback(db, summary.key) or 0
        _insert(db, row._replace(feedback=feedback), names.pair(), is_first=True)
        return
    feedback = row.feedback or _feedback_before(db, row, summary.key)
    row = row._replace(feedback=feedback, is_alone=int(_is_crowded(db, row)), is_valid=int(_is_last(db, row)))
    known = _of_carrier(db, row, row.carrier)
    if known is not None:
        row = row._replace(is_alone=known.is_alone, is_valid=known.is_valid)
        if known._replace(id=None, doubt=known.doubt % DISPUTED, question=row.question) == row:
            return
        _delete(db, known)
    _insert(db, row, names.pair())
    old = None if row.supersedes is None else _of_carrier(db, row, row.supersedes)
    if old is not None and old.is_valid:
        _invalidate(db, old)
    _note_dispute(db, row)


def _note_dispute(db: sqlite3.Connection, row: IndexRow) -> None:
    """Say of all valid evaluations of an answer whether one passes and another fails."""
    labels = f"SELECT label FROM answer_row WHERE {_SAME_ANSWER} AND label IN ({_DECIDED})"
    same = (row.trace_low, row.span, row.trace_high, row.stream)
    (found,) = db.execute(f"SELECT count(DISTINCT label) FROM ({labels})", same).fetchone()
    db.execute(
        f"UPDATE answer_row SET doubt = doubt % {DISPUTED} + ? WHERE {_SAME_ANSWER}",
        (DISPUTED if found > 1 else 0, *same),
    )


def note_feedback(db: sqlite3.Connection, key: AnswerKey, feedback: str) -> None:
    """Note ``up`` or ``down`` on an answer, which may come later; the last feedback counts.

    Raises:
        ValueError: an id of the key is not hexadecimal.
    """
    number = feedback_number(feedback)
    rows = versions_of(db, key, tenant=tenant_number(db, key.tenant))
    db.executemany("UPDATE answer_row SET feedback = ? WHERE id = ?", [(number, row.id) for row in rows])
    if not rows:
        db.execute(f"DELETE FROM answer_feedback WHERE {_OF_KEY}", key)
        db.execute("INSERT INTO answer_feedback VALUES (NULL, ?, ?, ?, ?)", (*key, number))
        db.execute(f"DELETE FROM answer_feedback WHERE id <= {_LAST_WAITING}", (_MOST_WAITING,))


_OF_KEY: Final = "trace = ? AND span = ? AND tenant = ?"
_LAST_WAITING: Final = "(SELECT max(id) FROM answer_feedback) - ?"


def forget(db: sqlite3.Connection, *, before_ns: int, most_rows: int, at_once: int) -> list[IndexRow]:
    """Delete the oldest answers: those from before a time, and those beyond a number; sessions go with them.

    Returns:
        The answers that it deleted: at most ``at_once``, so that a transaction stays short. Call it again
        until they are less.
    """
    surplus = min(max(0, size(db) - most_rows), at_once)
    rows = rows_of(
        db.execute(select("time_ns < ? ORDER BY time_ns, id LIMIT ?"), (min(before_ns, 2**63 - 1), at_once))
    )
    if len(rows) < surplus:
        rows = rows_of(db.execute(select("1 ORDER BY time_ns, id LIMIT ?"), (surplus,)))
    for row in rows:
        _delete(db, row)
    if rows:
        _forget_names(db, rows[0].hour)
    (oldest_ns,) = db.execute("SELECT min(time_ns) FROM answer_row").fetchone()
    forget_sessions(
        db, before_ns=_NEVER_NS if oldest_ns is None else max(oldest_ns, before_ns), at_once=at_once
    )
    return rows


def size(db: sqlite3.Connection) -> int:
    """Return the number of rows, with those of superseded evaluations."""
    (rows,) = db.execute("SELECT rows FROM answer_size").fetchone()
    return int(rows)


def _insert(db: sqlite3.Connection, row: IndexRow, pair: QuadrantMetrics, *, is_first: bool = False) -> None:
    mates = () if is_first else _mates(db, row)
    marks = ", ".join("?" for _ in row)
    cursor = db.execute(f"INSERT INTO answer_row ({COLUMNS}) VALUES ({marks})", row)
    db.execute("UPDATE answer_size SET rows = rows + 1")
    if row.is_valid and cursor.lastrowid is not None:
        _sums.count(db, row, mates, pair, sign=1)
        db.executemany(
            "INSERT OR IGNORE INTO answer_score VALUES (?, ?, ?, ?)",
            [(*score, cursor.lastrowid) for score in _scores(row)],
        )


def _delete(db: sqlite3.Connection, row: IndexRow) -> None:
    if row.is_valid:
        _invalidate(db, row)
    db.execute("DELETE FROM answer_row WHERE id = ?", (row.id,))
    db.execute("UPDATE answer_size SET rows = rows - 1")


def _invalidate(db: sqlite3.Connection, row: IndexRow) -> None:
    """Take a row out of all sums and lists."""
    db.execute("UPDATE answer_row SET is_valid = 0 WHERE id = ?", (row.id,))
    _sums.count(db, row, _mates(db, row), quadrant_metrics(db), sign=-1)
    db.executemany(
        "DELETE FROM answer_score WHERE metric = ? AND label = ? AND score = ? AND id = ?",
        [(*score, row.id) for score in _scores(row)],
    )
    if row.doubt >= DISPUTED:
        _note_dispute(db, row)


def _scores(row: IndexRow) -> list[tuple[int, int, int]]:
    found = metrics_in(row.metrics)
    return [(each.metric, each.label, each.score) for each in found if each.score is not None]


def _mates(db: sqlite3.Connection, row: IndexRow) -> Sequence[IndexRow]:
    """Return the other valid answers of the trace that are summed together with this one."""
    if row.is_alone:
        return ()
    found = rows_of(db.execute(select("trace_low = ? AND is_alone = 0 AND is_valid = 1"), (row.trace_low,)))
    return [mate for mate in found if mate.trace_high == row.trace_high and mate.id != row.id]


def _is_first(db: sqlite3.Connection, row: IndexRow) -> bool:
    """Return whether no other row is of this trace."""
    found = db.execute("SELECT 1 FROM answer_row WHERE trace_low = ? LIMIT 1", (row.trace_low,))
    return found.fetchone() is None


def _is_crowded(db: sqlite3.Connection, row: IndexRow) -> bool:
    (rows,) = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM answer_row WHERE trace_low = ? AND is_alone = 0 LIMIT ?)",
        (row.trace_low, _MOST_TOGETHER),
    ).fetchone()
    return bool(rows >= _MOST_TOGETHER)


def _of_carrier(db: sqlite3.Connection, beside: IndexRow, carrier: int) -> IndexRow | None:
    """Return the row of a carrier in the trace and of the tenant of another row."""
    found = db.execute(
        select(f"trace_low = ? AND is_alone IN (0, 1) AND carrier = ? AND {_BESIDE}"),
        (beside.trace_low, carrier, beside.trace_high, beside.stream),
    )
    return next(iter(rows_of(found)), None)


def _is_last(db: sqlite3.Connection, row: IndexRow) -> bool:
    """Return whether no evaluation that is here supersedes this one."""
    found = db.execute(
        f"SELECT 1 FROM answer_row WHERE trace_low = ? AND supersedes = ? AND {_BESIDE} LIMIT 1",
        (row.trace_low, row.carrier, row.trace_high, row.stream),
    )
    return found.fetchone() is None


_TENANT_OF: Final = "(SELECT tenant FROM answer_stream WHERE id = {})"
_DECIDED: Final = ", ".join(str(LABELS.index(label)) for label in (Label.PASS, Label.FAIL))
_BESIDE: Final = f"trace_high = ? AND {_TENANT_OF.format('stream')} = {_TENANT_OF.format('?')}"


_SAME_ANSWER: Final = f"trace_low = ? AND is_alone IN (0, 1) AND is_valid = 1 AND span = ? AND {_BESIDE}"


def _feedback_before(db: sqlite3.Connection, row: IndexRow, key: AnswerKey) -> int:
    """Return the feedback that was given on an answer before this row came."""
    waiting = _waiting_feedback(db, key)
    if waiting is not None:
        return waiting
    others = versions_of(db, key, tenant=tenant_number(db, key.tenant))
    return next((other.feedback for other in others if other.feedback), 0)


def _waiting_feedback(db: sqlite3.Connection, key: AnswerKey) -> int | None:
    """Take the feedback that waits for an answer."""
    waiting = db.execute(f"SELECT feedback FROM answer_feedback WHERE {_OF_KEY}", key).fetchone()
    if waiting is None:
        return None
    db.execute(f"DELETE FROM answer_feedback WHERE {_OF_KEY}", key)
    return int(waiting[0])


def _forget_names(db: sqlite3.Connection, from_hour: int) -> None:
    oldest = db.execute("SELECT time_ns FROM answer_row ORDER BY time_ns LIMIT 1").fetchone()
    oldest_hour = _NEVER if oldest is None else oldest[0] // HOUR_NS
    if from_hour < oldest_hour:
        forget_unused(db, oldest_hour=oldest_hour)


_NEVER: Final = 2**62
_NEVER_NS: Final = 2**63 - 1
