"""Traces in which nothing was read, counted by producer. A trigger keeps the sums, which outlive them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from ragtrace.traces.extract import Unread
from ragtrace_collector.ledger.account import UnreadTraces
from ragtrace_collector.store._ledger_tables import OTHERS
from ragtrace_collector.store.trace_key import tenant_of

UNREAD: Final = """
CREATE TABLE unread (   -- an account is never deleted
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, producer TEXT NOT NULL, number INTEGER NOT NULL DEFAULT 0,
    attributes TEXT NOT NULL, mapping TEXT NOT NULL, UNIQUE (tenant, producer));
ALTER TABLE trace ADD COLUMN unread INTEGER;    -- the account that counts it; NULL if something was read
CREATE TRIGGER trace_unread AFTER UPDATE OF unread ON trace BEGIN
    UPDATE unread SET number = number - 1 WHERE id = OLD.unread;
    UPDATE unread SET number = number + 1 WHERE id = NEW.unread;
END;
"""
_MOST_ACCOUNTS: Final = 100
"""Senders name producers; one more account of each tenant counts the others."""
_LONGEST: Final = 200


def note(db: sqlite3.Connection, trace_id: str, unread: Unread | None) -> None:
    """Count a decided trace once, under its producer; no longer, if late spans were read."""
    account = None if unread is None else _account(db, tenant_of(trace_id) or "", unread)
    db.execute("UPDATE trace SET unread = ?1 WHERE trace_id = ?2 AND unread IS NOT ?1", (account, trace_id))


def accounts(db: sqlite3.Connection) -> Sequence[UnreadTraces]:
    """Return all accounts, the largest first; none in a store that an older collector still writes."""
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'unread'").fetchone() is None:
        return ()
    rows = db.execute(
        "SELECT tenant, producer, number, attributes, mapping FROM unread ORDER BY number DESC, id"
    )
    return tuple(
        UnreadTraces(
            tenant=tenant,
            producer=producer,
            number=number,
            attributes=tuple(json.loads(attributes)),
            mapping=json.loads(mapping),
        )
        for tenant, producer, number, attributes, mapping in rows
    )


def _account(db: sqlite3.Connection, tenant: str, unread: Unread) -> int:
    """Return the account of a producer. It tells of the newest trace of those with the most parts."""
    producer = unread.producer[:_LONGEST]
    known = _known(db, tenant, producer)
    if known is None and db.execute("SELECT count(*) FROM unread").fetchone()[0] >= _MOST_ACCOUNTS:
        producer = OTHERS
        known = _known(db, tenant, producer)
    if known is not None and len(json.loads(known[1])) > len(unread.mapping):
        return int(known[0])
    told = json.dumps(unread.attributes), json.dumps(dict(unread.mapping))
    (account,) = db.execute(
        "INSERT INTO unread (tenant, producer, attributes, mapping) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET attributes = excluded.attributes, mapping = excluded.mapping"
        " RETURNING id",
        (tenant, producer, *told),
    ).fetchone()
    return int(account)


def _known(db: sqlite3.Connection, tenant: str, producer: str) -> tuple[int, str] | None:
    found: tuple[int, str] | None = db.execute(
        "SELECT id, mapping FROM unread WHERE tenant = ? AND producer = ?", (tenant, producer)
    ).fetchone()
    return found
