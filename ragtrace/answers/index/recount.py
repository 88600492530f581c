"""Make what is counted over the rows of the index anew, such as after a damaged file lost some of them."""

from __future__ import annotations

import sqlite3
from typing import Final

from ragtrace.answers.index import _sums
from ragtrace.answers.index._rows import IndexRow, metrics_in, rows_of, select
from ragtrace.answers.index._words import QuadrantMetrics, quadrant_metrics

COUNTED: Final = ("answer_size", "answer_score", "answer_sums", "answer_word_sums", "answer_metric_sums")
"""The tables that follow from the rows."""
_AT_ONCE: Final = 1_000


def recount(db: sqlite3.Connection) -> None:
    """Fill these tables from the rows, inside a transaction of the caller."""
    (names,) = db.execute("SELECT names FROM answer_size").fetchone() or (0,)
    for table in COUNTED:
        db.execute(f"DELETE FROM {table}")
    db.execute("INSERT INTO answer_size (rows, names) SELECT count(*), ? FROM answer_row", (names,))
    pair, last = quadrant_metrics(db), -1
    while rows := rows_of(db.execute(select("id > ? ORDER BY id LIMIT ?"), (last, _AT_ONCE))):
        for row in rows:
            if row.is_valid:
                _count(db, row, pair)
        last = rows[-1].id or 0


def _count(db: sqlite3.Connection, row: IndexRow, pair: QuadrantMetrics) -> None:
    before = (
        [] if row.is_alone else rows_of(db.execute(select(_BEFORE), (row.trace_low, row.trace_high, row.id)))
    )
    _sums.count(db, row, before, pair, sign=1)
    db.executemany(
        "INSERT INTO answer_score (metric, label, score, id) VALUES (?, ?, ?, ?)",
        [
            (each.metric, each.label, each.score, row.id)
            for each in metrics_in(row.metrics)
            if each.score is not None
        ],
    )


_BEFORE: Final = "trace_low = ? AND is_alone = 0 AND is_valid = 1 AND trace_high = ? AND id < ?"
