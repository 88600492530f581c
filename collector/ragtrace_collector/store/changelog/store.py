"""Open a store whose rows are logged, or bring a copy of it up to date."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from ragtrace.errors import ConfigError, ReadError, ReadUnavailable
from ragtrace.sqlite_file import transaction
from ragtrace_collector.store.changelog.capture import RowCapture
from ragtrace_collector.store.changelog.copy import (
    VERSION_KEY,
    CopyState,
    catch_up,
    discard,
    is_copy,
    note_state,
    opened_copy,
    state_of,
)
from ragtrace_collector.store.changelog.log import (
    LogDamaged,
    LoggedRow,
    LogLost,
    LogUnavailable,
    RowLog,
    RowReader,
)
from ragtrace_collector.store.changelog.messages import decode, encode_key
from ragtrace_collector.store.changelog.tables import all_rows, tables_of
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher
from ragtrace_collector.store.open_errors import lock_file, unusable
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.store.schema import NEWEST, migrate_to
from ragtrace_collector.store.sqlite import SqliteStore
from ragtrace_collector.store.writer import GroupCommit


async def open_logged_store(
    path: Path,
    row_log: RowLog,
    *,
    max_bytes: int,
    forward_to: Sequence[str] = (),
    cipher: PayloadCipher = NO_CIPHER,
    tenants: Collection[str] = (),
    is_crash: bool = True,
) -> SqliteStore:
    """Own a log and open the store that it holds; the file is brought up to date, or made anew.

    ``SqliteStore.open`` has the rest. The store closes the log. ``is_crash`` says that the former owner
    crashed, and did not only lose the log.

    Raises:
        ConfigError: the path cannot be used, or the log is damaged or was written by a newer ragtrace.
        StoreUnavailable: the log does not answer, or another owner came meanwhile: try again.
    """
    lock = lock_file(path)
    try:
        commits = await _opened_commits(path, row_log, cipher)
    except BaseException:
        row_log.close()
        lock.close()
        raise
    store = SqliteStore(commits, lock, max_bytes=max_bytes, forward_to=forward_to, cipher=cipher)
    try:
        await store.take_over(tenants, is_crash=is_crash)
    except BaseException:
        await store.aclose()
        raise
    return store


def follow(path: Path, reader: RowReader) -> None:
    """Bring a file for reading up to date with a log that another process owns. Several may do so at once.

    Raises:
        ConfigError: the path cannot be used, or a newer ragtrace wrote the log.
        ReadUnavailable: the log does not answer.
        ReadError: the log is damaged.
    """
    try:
        with opened_copy(path, is_checked=False) as db:
            if not catch_up(db, reader).version:
                migrate_to(db, NEWEST)  # nothing was stored yet: that can be read
    except LogUnavailable as exc:
        raise ReadUnavailable(str(exc)) from exc
    except LogDamaged as exc:
        raise ReadError(str(exc)) from exc
    except (sqlite3.Error, OSError) as exc:
        raise unusable(path, exc) from exc


async def _opened_commits(path: Path, row_log: RowLog, cipher: PayloadCipher) -> GroupCommit:
    hook = _LogRows(row_log, path)

    def prepare(db: sqlite3.Connection) -> None:
        hook.begin(db)
        with transaction(db):  # what the cipher writes is logged, too
            cipher.install(db)
            hook.before_commit(db)
        hook.committed()

    try:
        hook.state = await asyncio.to_thread(_own, path, row_log)
        commits = GroupCommit(path, prepare, hook)
        await commits.open()
    except (LogUnavailable, LogLost, NotLogged) as exc:
        raise StoreUnavailable(str(exc)) from exc
    except LogDamaged as exc:
        raise ConfigError(f"`store`: {exc}") from exc
    except (sqlite3.Error, OSError) as exc:
        raise unusable(path, exc) from exc
    return commits


def _own(path: Path, row_log: RowLog) -> CopyState:
    """Own a log, and make a file a copy of it, of the version that this ragtrace writes."""
    row_log.open()
    with opened_copy(path, is_checked=True) as db:
        opened = path.stat()
        state = catch_up(db, row_log)
        if state.version != NEWEST:
            state = _upgrade(db, row_log, state)
    if not os.path.exists(path) or not os.path.samestat(opened, path.stat()):
        discard(path)
        raise NotLogged(_EXCHANGED)
    return state


_EXCHANGED: Final = "its file was exchanged while it was opened"


def _upgrade(db: sqlite3.Connection, row_log: RowLog, state: CopyState) -> CopyState:
    """Migrate a file, and log all of its rows anew in one transaction: rows of an old version end there.

    A crash before that leaves a file whose version is not that of its log: it is made anew.
    """
    with _keys_of(db, version=state.version) as old:
        migrate_to(db, NEWEST)
        with transaction(db):
            position = row_log.write(_anew(db, old))
            upgraded = replace(state, version=NEWEST, position=position, current_ns=time.time_ns())
            note_state(db, upgraded)
    return upgraded


@contextmanager
def _keys_of(db: sqlite3.Connection, *, version: int) -> Iterator[sqlite3.Connection]:
    """Open a database of the keys that a store has at a version: SQLite moves it to disk if they are many."""
    with closing(sqlite3.connect("", isolation_level=None)) as keys:
        keys.execute("CREATE TABLE old (key BLOB PRIMARY KEY) WITHOUT ROWID")
        with transaction(keys):
            if version:
                rows = all_rows(db, tables_of(db))
                keys.executemany("INSERT INTO old VALUES (?)", ((encode_key(row),) for row in rows))
        yield keys


def _anew(db: sqlite3.Connection, old: sqlite3.Connection) -> Iterator[LoggedRow]:
    """Yield the version, every row, and the old rows that there are no more."""
    yield LoggedRow("", VERSION_KEY, (NEWEST,))
    with transaction(old):
        for row in all_rows(db, tables_of(db)):
            old.execute("DELETE FROM old WHERE key = ?", (encode_key(row),))
            yield row
    for (key,) in old.execute("SELECT key FROM old"):
        yield decode(key, None)


class NotLogged(sqlite3.OperationalError):
    """A transaction cannot be kept, because its rows cannot be logged."""


class _LogRows:
    """Logs the rows that a transaction changed before it is committed. This is a ``CommitHook``."""

    def __init__(self, row_log: RowLog, path: Path) -> None:
        self._log = row_log
        self._path = path
        self._is_ahead = False
        self._is_lost = False
        self._is_file_lost = False
        self.state: CopyState | None = None
        """As it was brought up to date."""

    def begin(self, db: sqlite3.Connection) -> None:
        """Note from now on what the connection changes.

        Raises:
            NotLogged: the file is not the one that was brought up to date.
        """
        if not is_copy(db) or (state := state_of(db)) is None or state != self.state:
            raise NotLogged(_EXCHANGED)
        self._capture = RowCapture(db, most_row_bytes=self._log.most_row_bytes)
        self._state = state

    def before_commit(self, db: sqlite3.Connection) -> None:
        """Log the rows that the transaction changed, and note in the file up to where it is a copy.

        Raises:
            NotLogged: the log did not take them.
        """
        rows = self._capture.changed()
        if not rows:
            return
        try:
            position = self._log.write(rows)
        except LogUnavailable as exc:
            raise NotLogged(str(exc)) from exc
        except LogLost as exc:
            self._is_lost = True
            raise NotLogged(str(exc)) from exc
        self._is_ahead = True
        self._state = replace(self._state, position=position, current_ns=time.time_ns())
        note_state(db, self._state)

    def committed(self) -> None:
        """Note that the file has what the log has."""
        self._is_ahead = False

    def is_lost_by(self, exc: sqlite3.Error) -> bool:
        """Say whether the log has another owner, or rows that the file has not."""
        return self._is_lost or self._is_ahead

    def file_lost(self) -> None:
        """Note that the file, or SQLite's log beside it, is not the one that was opened."""
        self._is_file_lost = True

    def close(self) -> None:
        """Give the log back."""
        if self._is_file_lost:
            discard(self._path)
        self._log.close()
