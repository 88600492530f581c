"""Maintenance of a store, while the collector runs or is stopped."""

from __future__ import annotations

from typing import NamedTuple

from ragtrace_collector.store.database import Database
from ragtrace_collector.store.store import open_tables


class RefusedDeliveries(NamedTuple):
    """Outbox items that a sink refused for one reason; they are kept for ``store.retention``."""

    sink: str
    reason: str
    requests: int
    oldest_ns: int


def refused(store: Database) -> tuple[RefusedDeliveries, ...]:
    """Return the items that sinks refused for good, by sink and reason.

    Raises:
        ReadError: the store cannot be read.
    """
    with store.reading() as db:
        rows = db.execute(
            "SELECT sink, reason, count(*), min(rejected_ns) FROM parcel WHERE rejected_ns IS NOT NULL"
            " GROUP BY sink, reason ORDER BY 1, 2"
        )
        return tuple(RefusedDeliveries(*row) for row in rows)


async def send_again(store: Database) -> int:
    """Put the items that sinks refused back into the outbox; return how many.

    A running collector sends them within a second.

    Raises:
        ReadError: the store cannot be read.
        ConfigError: it cannot be written.
    """
    with store.reading():
        pass  # raises if there is none
    statement = "UPDATE parcel SET rejected_ns = NULL, reason = '' WHERE rejected_ns IS NOT NULL"
    async with open_tables(store) as tables:
        return await tables.submit(lambda db: db.execute(statement).rowcount)
