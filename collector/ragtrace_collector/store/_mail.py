"""Mail from other shards in a SQLite store: which was received, so that it has its effect once."""

from __future__ import annotations

import sqlite3
from typing import Final

from ragtrace_collector.store.port import Mail
from ragtrace_collector.store.sessions import add_turn

RECEIVED_MAIL: Final = """
CREATE TABLE received_mail (id TEXT PRIMARY KEY, received_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX received_mail_age ON received_mail (received_ns);
"""
_ROWS_AT_ONCE: Final = 1_000


def receive(db: sqlite3.Connection, mail: Mail, *, now_ns: int) -> bool:
    """Keep what a mail tells; say whether it is new. One that came before changes nothing."""
    noted = db.execute("INSERT INTO received_mail VALUES (?, ?) ON CONFLICT DO NOTHING", (mail.id, now_ns))
    if not noted.rowcount:
        return False
    if mail.turn is not None:
        add_turn(db, mail.turn, now_ns=now_ns)
    return True


def forget(db: sqlite3.Connection, *, before_ns: int) -> int:
    """Forget some mail that was received before a time, the oldest first; return how much."""
    return db.execute(
        "DELETE FROM received_mail WHERE id IN ("
        " SELECT id FROM received_mail WHERE received_ns < ? ORDER BY received_ns LIMIT ?)",
        (before_ns, _ROWS_AT_ONCE),
    ).rowcount
