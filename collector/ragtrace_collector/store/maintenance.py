"""Maintenance of a store, while the collector runs or is stopped."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ragtrace.errors import InputError
from ragtrace.files.private import PendingFile
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import open_tables


class RefusedDeliveries(NamedTuple):
    """Outbox items that a sink refused for one reason; they are kept for ``store.retention``."""

    sink: str
    reason: str
    requests: int
    oldest_ns: int


def back_up(store: Path, to: Path) -> int:
    """Copy a store as of one moment; return the copy's size in bytes.

    The collector may run meanwhile. The copy is a store and can replace the original.

    Raises:
        ReadError: the store cannot be read.
        InputError: the copy cannot be written, or a file exists already.
    """
    with SqliteFile(store).reading() as db, new_copy(to) as partly:
        db.execute("COMMIT")  # the copy is a transaction by itself
        db.execute("VACUUM INTO ?", (str(partly),))
    return to.stat().st_size


@contextmanager
def new_copy(to: Path) -> Iterator[Path]:
    """Make an empty private file, and move it to ``to`` if the block succeeds.

    Raises:
        InputError: it cannot be written, or a file exists already.
    """
    if os.path.lexists(to):
        raise _taken(to)
    try:
        pending = PendingFile(to)
        try:
            yield pending.partial
            pending.commit(replaces=False)
        finally:
            pending.abandon()
    except FileExistsError as exc:
        raise _taken(to) from exc
    except (OSError, sqlite3.Error) as exc:
        raise InputError(f"the copy {str(to)!r} cannot be written: {exc}") from exc


def _taken(to: Path) -> InputError:
    return InputError(f"there is a file {str(to)!r} already: name another")


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


async def send_again(store: Database, *, sink: str | None = None) -> int:
    """Put the items that a sink (or any sink) refused back into the outbox; return how many.

    A running collector sends them within a second.

    Raises:
        ReadError: the store cannot be read.
        ConfigError: it cannot be written.
    """
    with store.reading():
        pass  # raises if there is none
    statement = "UPDATE parcel SET rejected_ns = NULL, reason = '' WHERE rejected_ns IS NOT NULL"
    only, values = ("", ()) if sink is None else (" AND sink = ?", (sink,))
    async with open_tables(store) as tables:
        return await tables.submit(lambda db: db.execute(statement + only, values).rowcount)
