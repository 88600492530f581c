"""Dead letters in a SQLite store. A trigger counts them, so that the sums outlive the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.sql import Db
from ragtrace_collector.store.records import DeadLetter

_MOST_ROWS: Final = 10_000


def note(db: Db, letter: DeadLetter, *, now_ns: int) -> bool:
    """Note a dead letter; say whether it is new."""
    added = db.execute(
        "INSERT INTO dead_letter (topic, partition_id, message_offset, reason, bytes, copied_to, noted_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (topic, partition_id, message_offset) DO NOTHING",
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


def latest(db: Db, limit: int) -> tuple[DeadLetter, ...]:
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


def sums(db: Db) -> Mapping[str, int]:
    """Return how many were ever noted, by reason."""
    return dict(
        db.execute(
            "SELECT reason, sum(number) FROM dead_letter_sum GROUP BY reason ORDER BY reason"
        ).fetchall()
    )


def forget(db: Db, *, before_ns: int) -> None:
    """Delete old rows, and all beyond the newest ten thousand."""
    db.execute("DELETE FROM dead_letter WHERE noted_ns < ?", (before_ns,))
    db.execute(
        "DELETE FROM dead_letter WHERE id <= (SELECT id FROM dead_letter ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (_MOST_ROWS,),
    )
