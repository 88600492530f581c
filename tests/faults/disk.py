"""SQLite connections that fail where a test wants them to. They run inside the collector's process."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

Kind = Literal["none", "killed", "io error", "full", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What strikes a collector once: at its n-th statement, counted from 1."""

    kind: Kind = "none"
    at: int = 0


FULL, READ_ONLY = "full", "read-only"
"""What the disk is like as long as a file of that name stands in the folder."""


class Counting:
    """Counts statements in the file ``statements``, and kills the process at the one that it is told."""

    def __init__(self, folder: Path, blow: Blow) -> None:
        self.blow, self.count = blow, 0
        self._told_in = os.open(folder / "statements", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def counts_to_the_blow(self) -> bool:
        self.count += 1
        os.pwrite(self._told_in, f"{self.count:9}".encode(), 0)
        if self.count != self.blow.at:
            return False
        if self.blow.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def fail_where_told(folder: Path, blow: Blow) -> None:
    """From now on, this process's connections count their statements and take the blow."""
    counting = Counting(folder, blow)

    def before(connection: _Connection, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE":
            _set_weather(connection, folder)
        if blow.kind in ("io error", "full") and counting.count + 1 == blow.at:
            counting.count += 1
            _fail(connection, blow.kind)

    class Connection(_Connection):
        def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
            before(self, sql)
            return super().execute(sql, values)

        def executemany(self, sql: str, values: Any, /) -> sqlite3.Cursor:
            before(self, sql)
            return super().executemany(sql, values)

    connect = partial(sqlite3.connect, factory=Connection)

    def connect_and_watch(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        # called right before each statement, those of a script and of a trigger among them
        connection.set_trace_callback(lambda _: counting.counts_to_the_blow() and None)
        return connection

    sqlite3.connect = connect_and_watch  # type: ignore[assignment]


class _Connection(sqlite3.Connection):
    weather: Sequence[bool] = (False, False)
    """Whether the disk was full, and read-only, when its last transaction began."""


def _set_weather(connection: _Connection, folder: Path) -> None:
    now = ((folder / FULL).exists(), (folder / READ_ONLY).exists())
    if now == connection.weather:
        return
    connection.weather = now
    is_full, is_read_only = now
    # Limits of its own, so that the errors are: one below what is used is taken for what is used.
    most_pages = 1 if is_full else (1 << 32) - 2
    sqlite3.Connection.execute(connection, f"PRAGMA max_page_count={most_pages}").fetchall()
    sqlite3.Connection.execute(connection, f"PRAGMA query_only={int(is_read_only)}")


def _fail(connection: sqlite3.Connection, kind: Kind) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    if kind == "full":
        # as SQLite does where a transaction has no room: it undoes all of it, and not one statement
        if connection.in_transaction:
            connection.rollback()
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error
