"""Traces in which nothing was read, counted by producer. A trigger keeps the sums, which outlive them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from ragtrace.sql import Db
from ragtrace.traces.extract import Unread
from ragtrace_collector.ledger import UnreadTraces
from ragtrace_collector.store._accounts import OTHERS
from ragtrace_collector.store.trace_key import tenant_of

_MOST_ACCOUNTS: Final = 100
"""Senders name producers; one more account of each tenant counts the others."""
_LONGEST: Final = 200


def note(db: Db, trace_id: str, unread: Unread | None) -> None:
    """Count a decided trace once, under its producer; no longer, if late spans were read."""
    account = None if unread is None else _account(db, tenant_of(trace_id) or "", unread)
    db.execute("UPDATE trace SET unread = ? WHERE trace_id = ?", (account, trace_id))


def accounts(db: Db) -> Sequence[UnreadTraces]:
    """Return all accounts, the largest first."""
    rows = db.execute(
        "SELECT tenant, producer, coalesce(counted.number, 0), attributes, mapping FROM unread LEFT JOIN"
        " (SELECT account, sum(number) AS number FROM unread_sum GROUP BY account) AS counted"
        " ON account = id ORDER BY 3 DESC, id"
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


def _account(db: Db, tenant: str, unread: Unread) -> int:
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
        " ON CONFLICT (tenant, producer) DO UPDATE SET"
        " attributes = excluded.attributes, mapping = excluded.mapping RETURNING id",
        (tenant, producer, *told),
    ).fetchone()
    return int(account)


def _known(db: Db, tenant: str, producer: str) -> tuple[int, str] | None:
    found: tuple[int, str] | None = db.execute(
        "SELECT id, mapping FROM unread WHERE tenant = ? AND producer = ?", (tenant, producer)
    ).fetchone()
    return found
