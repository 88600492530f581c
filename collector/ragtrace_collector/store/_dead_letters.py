"""Dead letters in a SQLite store. A trigger counts them, so that the sums outlive the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from ragtrace_collector.store.port import DeadLetter

DEAD_LETTERS: Final = """
CREATE TABLE dead_letter (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL, partition_id INTEGER NOT NULL, message_offset INTEGER NOT NULL,
    reason TEXT NOT NULL, bytes INTEGER NOT NULL, copied_to TEXT NOT NULL, noted_ns INTEGER NOT NULL,
    UNIQUE (topic, partition_id, message_offset));
CREATE INDEX dead_letter_noted ON dead_letter (noted_ns);
CREATE TABLE dead_letter_sum (reason TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER dead_letter_counted AFTER INSERT ON dead_letter BEGIN
    INSERT INTO dead_letter_sum VALUES (NEW.reason, 1) ON CONFLICT DO UPDATE SET number = number + 1;
END;
"""
_MOST_ROWS: Final = 10_000


def note(db: sqlite3.Connection, letter: DeadLetter, *, now_ns: int) -> bool:
    """Note a dead letter; say whether it is new."""
    added = db.execute(
        "INSERT INTO dead_letter (topic, partition_id, message_offset, reason, bytes, copied_to, noted_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            letter.topic,
            letter.partition,
            letter.offset,
            letter.reason,
            letter.bytes,
            letter.copied_to,
            now_ns,
        ),
    )
    return added.rowcount > 0


def latest(db: sqlite3.Connection, limit: int) -> tuple[DeadLetter, ...]:
    """Return those that were noted last."""
    rows = db.execute(
        "SELECT topic, partition_id, message_offset, reason, bytes, copied_to FROM dead_letter"
        " ORDER BY id DESC LIMIT ?",
        (limit,),
    ).fetchall()
    return tuple(
        DeadLetter(topic=topic, partition=partition, offset=offset, reason=reason, bytes=size, copied_to=copy)
        for topic, partition, offset, reason, size, copy in rows
    )


def sums(db: sqlite3.Connection) -> Mapping[str, int]:
    """Return how many were ever noted, by reason; none in a store that an older collector still writes."""
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'dead_letter_sum'").fetchone() is None:
        return {}
    return dict(db.execute("SELECT reason, number FROM dead_letter_sum ORDER BY reason").fetchall())


def forget(db: sqlite3.Connection, *, before_ns: int) -> None:
    """Delete old rows, and all beyond the newest ten thousand."""
    db.execute("DELETE FROM dead_letter WHERE noted_ns < ?", (before_ns,))
    db.execute(
        "DELETE FROM dead_letter WHERE id <= (SELECT id FROM dead_letter ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (_MOST_ROWS,),
    )
