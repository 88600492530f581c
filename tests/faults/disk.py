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


class Weather:
    """What a disk is like as long as a file of that name stands in the folder."""

    FULL = "full"
    READ_ONLY = "read-only"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def set(self, name: str) -> None:
        (self._folder / name).touch()

    def clear(self, name: str) -> None:
        (self._folder / name).unlink()

    def is_set(self, name: str) -> bool:
        return (self._folder / name).exists()


def fail_where_told(folder: Path, blow: Blow) -> None:
    """From now on, this process's connections count their statements and take the blow.

    The number of statements so far stands in the file ``statements``.
    """
    counting = _Counting(folder, blow)

    class Connection(_Connection):
        def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
            counting.before(self, sql)
            return super().execute(sql, values)

        def executemany(self, sql: str, values: Any, /) -> sqlite3.Cursor:
            counting.before(self, sql)
            return super().executemany(sql, values)

    connect = partial(sqlite3.connect, factory=Connection)

    def connect_and_watch(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(counting.traced)
        return connection

    sqlite3.connect = connect_and_watch  # type: ignore[assignment]


class _Connection(sqlite3.Connection):
    weather: Sequence[bool] = (False, False)
    """Whether the disk was full, and read-only, when its last transaction began."""


class _Counting:
    def __init__(self, folder: Path, blow: Blow) -> None:
        self._blow = blow
        self._weather = Weather(folder)
        self._count = 0
        self._tally = os.open(folder / "statements", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def traced(self, sql: str) -> None:
        """Called by SQLite right before each statement, those of a script and of a trigger among them."""
        self._count += 1
        os.pwrite(self._tally, f"{self._count:9}".encode(), 0)
        if self._blow.kind == "killed" and self._count == self._blow.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, connection: _Connection, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE":
            self._set_weather(connection)
        if self._blow.kind in ("io error", "full") and self._count + 1 == self._blow.at:
            self._count += 1
            self._fail(connection)

    def _fail(self, connection: sqlite3.Connection) -> None:
        if self._blow.kind == "full":
            # as SQLite does where a transaction has no room: it undoes all of it, and not one statement
            if connection.in_transaction:
                connection.rollback()
            raise _error("database or disk is full", sqlite3.SQLITE_FULL)
        raise _error("disk I/O error", sqlite3.SQLITE_IOERR)

    def _set_weather(self, connection: _Connection) -> None:
        now = (self._weather.is_set(Weather.FULL), self._weather.is_set(Weather.READ_ONLY))
        if now == connection.weather:
            return
        connection.weather = now
        is_full, is_read_only = now
        # Limits of its own, so that the errors are: one below what is used is taken for what is used.
        most_pages = 1 if is_full else (1 << 32) - 2
        sqlite3.Connection.execute(connection, f"PRAGMA max_page_count={most_pages}").fetchall()
        sqlite3.Connection.execute(connection, f"PRAGMA query_only={int(is_read_only)}")


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error
