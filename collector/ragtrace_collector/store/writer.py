"""Group commit: many transactions of one loop share one fsync.

With ``synchronous=FULL`` a commit costs an fsync, so each commit includes all work submitted during the
previous one (measured: as fast as ``NORMAL`` from ten rows a commit).
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ragtrace_collector.store._files import StoreFiles
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
_Result = tuple["asyncio.Future[Any]", Any]


class _Submission(NamedTuple):
    work: Work
    future: asyncio.Future[Any]
    is_acknowledged: bool


_MOST_A_COMMIT: Final = 256
_BUSY_TIMEOUT_S: Final = 5.0
"""How long to wait for another program's lock on the file."""
LOG_BYTES: Final = 16 << 20
"""The size to which the write-ahead log is truncated after a checkpoint."""


class _LostFile(sqlite3.OperationalError):
    """One of the store's files is not the one that was opened."""


class GroupCommit:
    """One thread that owns the connection and commits submissions in groups, in order."""

    def __init__(self, path: Path, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self._path = path
        self._prepare = prepare
        self._is_closed = False
        self._submissions: queue.SimpleQueue[_Submission | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="ragtrace-store", daemon=True)

    @property
    def path(self) -> Path:
        return self._path

    async def open(self) -> None:
        """Open the database and prepare it.

        Raises:
            OSError: the file cannot be made or read.
            sqlite3.Error: it cannot be opened or is not a database.
        """
        self._thread.start()
        await self._opened

    async def submit(self, work: Callable[[sqlite3.Connection], T], *, is_acknowledged: bool = False) -> T:
        """Run ``work`` inside a transaction; when it returns, it is on disk. If it raises, nothing is kept.

        Submitted work is committed even if the caller is cancelled. ``is_acknowledged`` means that a sender
        will be told that the data is safe: then it also raises if one of the store's files was lost during
        the commit. Other work gets the result of the open database, as later work will: a lease that was
        committed but reported as failed would have no owner.

        Raises:
            sqlite3.Error: nothing is kept, as after ``aclose``.
        """
        if self._is_closed:
            raise sqlite3.OperationalError("it is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._submissions.put(_Submission(work, future, is_acknowledged))
        return await future

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log. It grows while another program reads the file."""
        try:
            return os.stat(self._files.log).st_size
        except OSError:
            return 0

    async def aclose(self) -> None:
        """Commit what was submitted, then close."""
        self._is_closed = True
        self._submissions.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            connection = self._connect()
            self._files = StoreFiles.of(self._path)
        except Exception as exc:  # noqa: BLE001 -- whoever opens it must hear of it, and says what it is
            self._resolve([(self._opened, exc)])
            return
        self._resolve([(self._opened, None)])
        try:
            for group in self._groups():
                self._resolve(
                    list(zip((each.future for each in group), self._results(connection, group), strict=True))
                )
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        # It holds content: only its owner may read it. SQLite gives its other files the same mode.
        self._path.touch(mode=0o600)
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
        try:
            self._prepare(connection)  # first, so that a refused file stays unchanged
            (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if journal != "wal":
                raise sqlite3.OperationalError("no write-ahead log can be kept here, as on a network's disk")
            connection.execute("PRAGMA synchronous=FULL")
            # Some systems build SQLite to write zeros over what is deleted. Measured, that is two fifths of
            # the cost of forwarding, and copies may be in the log anyway: encryption is what hides content.
            connection.execute("PRAGMA secure_delete=FAST")
            connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
            connection.execute("SELECT 1 FROM sqlite_schema").close()  # now the log is there
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _groups(self) -> Iterator[list[_Submission]]:
        while (first := self._submissions.get()) is not None:
            group = [first]
            closing = False
            while len(group) < _MOST_A_COMMIT and not closing:
                try:
                    following = self._submissions.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    closing = True
                else:
                    group.append(following)
            yield group
            if closing:
                return

    def _results(self, connection: sqlite3.Connection, group: list[_Submission]) -> list[Any]:
        """Return what is told of a group, an exception if it failed. Only a commit that was seen succeeds."""
        try:
            results = self._committed(connection, group)
        except BaseException as exc:  # noqa: BLE001 -- whatever it is, it must neither pass for success nor end this thread
            _undo(connection)
            return [_told(exc)] * len(group)
        try:
            self._refuse_other_files(connection)
        except BaseException as exc:  # noqa: BLE001 -- as above
            lost = _told(exc)
            return [
                lost if each.is_acknowledged else result for each, result in zip(group, results, strict=True)
            ]
        return results

    def _committed(self, connection: sqlite3.Connection, group: list[_Submission]) -> list[Any]:
        _roll_back(connection)  # the group before, if its own rollback failed
        self._refuse_other_files(connection)
        self._cut_log(connection)
        connection.execute("BEGIN IMMEDIATE")
        results = [self._run_one(connection, each.work) for each in group]
        connection.execute("COMMIT")
        return results

    def _refuse_other_files(self, connection: sqlite3.Connection) -> None:
        """Data written into a moved or deleted file would be lost after a restart.

        A deleted log held acknowledged data: it is written into the store, if that is safe.
        """
        trouble = self._files.trouble()
        if not trouble:
            return
        if self._files.may_be_saved() and _is_emptied(connection):
            trouble += "; what was acknowledged before was written into the store itself"
        raise _LostFile(trouble)

    def _cut_log(self, connection: sqlite3.Connection) -> None:
        """Truncate a long log, unless another program still reads from it; don't wait for that program."""
        if self.log_bytes() <= LOG_BYTES:
            return
        connection.execute("PRAGMA busy_timeout=0")
        try:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.execute(f"PRAGMA busy_timeout={int(_BUSY_TIMEOUT_S * 1000)}")

    @staticmethod
    def _run_one(connection: sqlite3.Connection, work: Work) -> Any:
        connection.execute("SAVEPOINT one")
        try:
            result = work(connection)
        except Exception as exc:
            if isinstance(exc, MemoryError) or not connection.in_transaction:
                raise  # the whole group: on a full disk, SQLite has rolled it back itself
            connection.execute("ROLLBACK TO one")
            result = exc
        connection.execute("RELEASE one")
        return result

    def _resolve(self, results: list[_Result]) -> None:
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(_settle, results)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # a full disk has already ended it
        connection.execute("ROLLBACK")


def _undo(connection: sqlite3.Connection) -> None:
    with suppress(BaseException):  # then it is tried again before the next group
        _roll_back(connection)
    with suppress(BaseException):
        # On a full disk the log cannot grow: with its pages in place, it begins again from its start.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _told(exc: BaseException) -> sqlite3.Error:
    if isinstance(exc, sqlite3.Error):
        return exc
    what = f"a commit failed unexpectedly: {type(exc).__name__}"
    with suppress(Exception):
        log.error("%s", what, exc_info=exc, extra=event("commit_failed"))
    return sqlite3.OperationalError(what)


def _is_emptied(connection: sqlite3.Connection) -> bool:
    """Write the log's content into the store; say whether all of it was written."""
    try:
        busy, in_log, brought = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    except sqlite3.Error:
        return False
    return not busy and in_log == brought


def _settle(results: list[_Result]) -> None:
    for future, result in results:
        if future.done():  # the caller was cancelled
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
