"""Writers: processes that write one store, and what becomes of their work when they are gone."""

from __future__ import annotations

from typing import Final

from ragtrace.sql import Db
from ragtrace_collector.store.revisions import UNDECIDED
from ragtrace_collector.store.sampling import move_windows


def take_back(db: Db, writer: int, *, has_crashed: bool) -> None:
    """End the leases and looks of a writer that is gone. If it crashed, they count against what it had."""
    crashed = int(has_crashed)
    db.execute(
        "UPDATE job SET state = 'queued', crashes = crashes + ? WHERE state = 'leased' AND owner = ?",
        (crashed, writer),
    )
    for table, left in _LEFT.items():
        db.execute(f"UPDATE {table} SET owner = 0 WHERE owner = ?{left}", (writer,))
    db.execute(
        "UPDATE suspect SET is_looked_at = 0, crashes = crashes + ? WHERE is_looked_at = 1 AND owner = ?",
        (crashed, writer),
    )


_LEFT: Final = {
    "trace": f" AND {UNDECIDED}",
    "parcel": " AND rejected_ns IS NULL",
    "session": " AND is_ended = 0",
    "anchor_claim": "",
}
"""What is still to be done, so that others look for it."""


def fold(db: Db, writer: int) -> None:
    """Add the sums of a writer that is gone to those of all that were before."""
    for table, key in _SUMS.items():
        db.execute(
            f"INSERT INTO {table} (writer, {key}, number) SELECT 0, {key}, number FROM {table}"
            f" WHERE writer = ? ON CONFLICT (writer, {key}) DO UPDATE"
            f" SET number = {table}.number + excluded.number",
            (writer,),
        )
        db.execute(f"DELETE FROM {table} WHERE writer = ?", (writer,))
    move_windows(db, writer, 0)


_SUMS: Final = {
    "ledger": "state, reason, rule, tenant",
    "outbox": "sink, state",
    "dead_letter_sum": "reason",
    "unread_sum": "account",
    "stored_bytes": "kind",
}
"""What a sum is of."""
