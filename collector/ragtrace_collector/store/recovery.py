"""Recover the readable rows of a damaged store: ``python -m ragtrace_collector.store.recovery STORE NEW``.

SQLite's own ``.recover`` refuses many of them, and leaves sums that do not add up.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from ragtrace.errors import InputError, RagtraceError, ReadError
from ragtrace.sql import SqliteDb
from ragtrace_collector.store.sqlite import prepare
from ragtrace_collector.store.tables import SUMS


def save_readable(damaged: Path, to: Path) -> Mapping[str, int]:
    """Copy every readable row into a new store; return how many of each table.

    The collector must be stopped. The rows before and after a damaged page of a table are recovered.

    Raises:
        InputError: the file exists already, or cannot be written.
        ReadError: the list of tables cannot be read.
    """
    try:
        os.close(os.open(to, os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as exc:
        raise InputError(f"the copy {str(to)!r} cannot be made ({exc}): name another") from exc
    try:
        with closing(_opened(damaged)) as old, closing(_empty(to)) as new:
            prepare(new)
            _refuse_other_version(old, new)
            return {table: _copy(old, new, table) for table in _tables(new)}
    except sqlite3.Error as exc:
        to.unlink()
        raise ReadError(f"nothing can be read of {str(damaged)!r} ({exc}): restore a backup") from exc


def _empty(new: Path) -> SqliteDb:
    return sqlite3.connect(new, isolation_level=None, factory=SqliteDb)


def _opened(damaged: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _refuse_other_version(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    theirs, ours = (db.execute("PRAGMA user_version").fetchone()[0] for db in (old, new))
    if theirs != ours:
        raise sqlite3.DatabaseError(f"it is of version {theirs}, and this ragtrace recovers {ours}")


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows if name not in SUMS and not name.startswith("sqlite_")]


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> int:
    """Copy rows from the table's start until one cannot be read, then from its end."""
    columns = new.execute(f"SELECT name, pk FROM pragma_table_info('{table}')").fetchall()
    names = ", ".join(name for name, _ in columns)
    marks = ", ".join("?" for _ in columns)
    key = [name for name, pk in sorted(columns, key=lambda column: column[1]) if pk] or ["rowid"]
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
    copied = 0
    new.execute("BEGIN")
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{name} {direction}" for name in key)
        rows = _readable(old, f"SELECT {names} FROM {table} NOT INDEXED ORDER BY {order}")
        copied += sum(new.execute(insert, row).rowcount for row in rows)
    new.execute("COMMIT")
    return copied


def _readable(db: sqlite3.Connection, query: str) -> Iterator[tuple[object, ...]]:
    with suppress(sqlite3.DatabaseError):  # the damage
        yield from db.execute(query)


def main() -> None:
    """Save what can be read, and say how many rows of each table."""
    try:
        damaged, to = map(Path, sys.argv[1:])
        sys.stdout.write(f"{dict(save_readable(damaged, to))}\n")
    except ValueError:
        sys.exit("usage: python -m ragtrace_collector.store.recovery STORE NEW")
    except RagtraceError as exc:
        sys.exit(f"Error: {exc}")


if __name__ == "__main__":
    main()
