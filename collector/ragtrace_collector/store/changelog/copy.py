"""A file that is a copy of a log: brought up to date, made anew, and known by the position that it holds."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from ragtrace.errors import ConfigError
from ragtrace.sqlite_file import primary_code, transaction
from ragtrace_collector.store.changelog.log import LogDamaged, LoggedRow, LogState, RowBatch, RowReader
from ragtrace_collector.store.changelog.tables import COPY, LoggedTable, put, table_names, tables_of
from ragtrace_collector.store.schema import NEWEST, migrate_to

VERSION_KEY: Final = ("schema",)
"""The key of the row, of no table, that says of which version the rows after it are."""
_NO_VERSION: Final = 0
_SAFE_SHARE: Final = 0.9
"""A copy is made anew a little before deletions that it has not seen may be gone from the log."""
_BUSY_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """What a file is a copy of, and up to where."""

    log: str
    version: int
    """That of the rows; 0 if none was read yet."""
    position: int
    current_ns: int
    """When it was known to be a copy of the whole log."""

    def is_usable(self, db: sqlite3.Connection, log: LogState, *, now_ns: int) -> bool:
        """Say whether what follows in the log makes it a copy of the whole log again."""
        age_s = (now_ns - self.current_ns) / 1e9
        is_young = 0 <= age_s < _SAFE_SHARE * log.deletions_kept_s
        is_there = log.start <= self.position <= log.end
        is_of_version = self.version != _NO_VERSION and self.version == _version_of(db)
        return (
            self.log == log.id and is_there and is_of_version and (is_young or log.end <= self.position + 1)
        )


class _Overtaken(Exception):
    """Another process brings the same file up to date."""


@contextmanager
def opened_copy(path: Path, *, is_checked: bool) -> Iterator[sqlite3.Connection]:
    """Open or create a file that is to be a copy of a log. With ``is_checked``, a damaged one is emptied.

    Raises:
        ConfigError: it is a store of its own, or another program's.
        sqlite3.Error: it cannot be used.
        OSError: it cannot be created.
    """
    path.touch(mode=0o600)
    if is_checked and _is_damaged(path):
        _make_empty(path)
    with closing(_connect(path)) as db:
        if not db.execute("SELECT 1 FROM main.sqlite_schema LIMIT 1").fetchone():
            db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        elif not is_copy(db):
            raise ConfigError(
                f"`store.path`: {str(path)!r} is no copy of a log, and is kept as it is: name another folder"
            )
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {COPY} (log TEXT NOT NULL, version INTEGER NOT NULL,"
            " position INTEGER NOT NULL, current_ns INTEGER NOT NULL)"
        )
        yield db


def discard(path: Path) -> None:
    """Let a copy be made anew whose file or log was exchanged: together they may be a mix of two copies.

    What is no copy stays as it is.
    """
    try:
        path.touch(mode=0o600)
        if not _is_foreign(path):
            _make_empty(path)
    except (OSError, sqlite3.Error):
        pass  # whoever opens it says why


def is_copy(db: sqlite3.Connection) -> bool:
    """Say whether a file is a copy of a log."""
    return bool(db.execute("SELECT 1 FROM main.sqlite_schema WHERE name = ?", (COPY,)).fetchone())


def state_of(db: sqlite3.Connection) -> CopyState | None:
    """Return what a file is a copy of; ``None`` if nothing was read into it yet."""
    row = db.execute(f"SELECT log, version, position, current_ns FROM main.{COPY}").fetchone()
    if row is None:
        return None
    log, version, position, current_ns = row
    return CopyState(log=log, version=version, position=position, current_ns=current_ns)


def note_state(db: sqlite3.Connection, state: CopyState) -> None:
    """Note, in the transaction of the rows, up to where a file is a copy."""
    values = (state.log, state.version, state.position, state.current_ns)
    if not db.execute(
        f"UPDATE main.{COPY} SET log = ?, version = ?, position = ?, current_ns = ?", values
    ).rowcount:
        db.execute(f"INSERT INTO main.{COPY} VALUES (?, ?, ?, ?)", values)


def catch_up(db: sqlite3.Connection, reader: RowReader) -> CopyState:
    """Make a file a copy of the whole log as it is now; of version 0 if the log has no row yet.

    Raises:
        ConfigError: a newer ragtrace wrote the log.
        LogUnavailable: the log does not answer.
        LogDamaged: a message is no row.
    """
    while True:
        try:
            return _catch_up(db, reader)
        except _Overtaken:
            continue


def _catch_up(db: sqlite3.Connection, reader: RowReader) -> CopyState:
    now_ns, log = time.time_ns(), reader.look()
    found = state_of(db)
    if found is None or not found.is_usable(db, log, now_ns=now_ns):
        found = CopyState(log=log.id, version=_NO_VERSION, position=log.start, current_ns=now_ns)
        _empty(db, found)
    is_empty = True
    for batch in reader.read(found.position):
        is_empty = is_empty and not batch.rows
        found = _apply(db, reader, found, batch)
    if found.version == _NO_VERSION and not is_empty:
        raise LogDamaged(
            f"{reader.name} does not say of which version its rows are: another program wrote it: name "
            "another topic, or delete it and make it again"
        )
    current = replace(found, current_ns=now_ns)
    with _following(db, found):
        note_state(db, current)
    return current


def _apply(db: sqlite3.Connection, reader: RowReader, state: CopyState, batch: RowBatch) -> CopyState:
    rows, places = batch.rows, batch.places
    for number in reversed(range(len(rows))):
        if not rows[number].table:  # all rows of its version follow: what was before is of no account
            version = _version_in(
                rows[number], f"{reader.name}: the message at offset {places[number]}", reader
            )
            state = _begin_version(db, state, version)
            rows, places = rows[number + 1 :], places[number + 1 :]
            break
    after = replace(state, position=batch.position)
    with _following(db, state):
        if rows and state.version != _NO_VERSION:
            _put_all(db, reader, rows, places)
        note_state(db, after)
    return after


def _version_in(row: LoggedRow, which: str, reader: RowReader) -> int:
    version = row.values[0] if row.values else None
    if row.key != VERSION_KEY or not isinstance(version, int) or version < 1:
        raise LogDamaged(f"{which} does not say of which version the rows after it are")
    if version > NEWEST:
        raise ConfigError(
            f"`store`: {reader.name} was written by a newer ragtrace: its rows are of version {version}, and "
            f"this one knows {NEWEST}: upgrade ragtrace"
        )
    return version


def _begin_version(db: sqlite3.Connection, state: CopyState, version: int) -> CopyState:
    """Make a file empty, with the tables of a version and without the rows that a new store begins with."""
    new = replace(state, version=_NO_VERSION)
    _empty(db, new)
    migrate_to(db, version)
    begun = replace(state, version=version)
    with _following(db, new):
        with _without_triggers(db):
            for table in tables_of(db).values():
                db.execute(f"DELETE FROM main.{table.name}")
        note_state(db, begun)
    return begun


def _put_all(
    db: sqlite3.Connection, reader: RowReader, rows: Sequence[LoggedRow], places: Sequence[int]
) -> None:
    tables = tables_of(db)
    for row, place in zip(rows, places, strict=True):
        if (fault := _fault_of(row, tables.get(row.table))) is not None:
            raise LogDamaged(f"{reader.name}: the message at offset {place} {fault}")
    last = {(row.table, row.key): row for row in rows}
    by_table = sorted(last.values(), key=lambda row: row.table)
    try:
        with _without_triggers(db):
            for name, of_table in groupby(by_table, key=lambda row: row.table):
                put(db, tables[name], list(of_table))
    except sqlite3.IntegrityError as exc:
        raise LogDamaged(
            f"{reader.name}: a message at the offsets {places[0]} to {places[-1]} is no row of a store: {exc}"
        ) from exc


def _fault_of(row: LoggedRow, table: LoggedTable | None) -> str | None:
    if table is None:
        return f"is a row of {row.table!r}, which is no table of this store"
    if len(row.key) != len(table.key) or (row.values is not None and len(row.values) != len(table.columns)):
        return f"has not the columns of {row.table!r}"
    return None


def _empty(db: sqlite3.Connection, state: CopyState) -> None:
    """Delete all tables, while other processes may be reading them."""
    with transaction(db):
        for name in table_names(db):
            db.execute(f"DROP TABLE main.{name}")
        db.execute("PRAGMA user_version = 0")
        note_state(db, state)


@contextmanager
def _following(db: sqlite3.Connection, state: CopyState) -> Iterator[None]:
    """Run a block as one transaction, unless another process brought the file to another state meanwhile."""
    with transaction(db):
        if state_of(db) != state:
            raise _Overtaken
        yield


@contextmanager
def _without_triggers(db: sqlite3.Connection) -> Iterator[None]:
    """Run a block inside a transaction without the store's own triggers: what they wrote is in the log."""
    triggers = db.execute("SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER main.{name}")
    yield
    for _, sql in triggers:
        db.execute(sql)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)


def _make_empty(path: Path) -> None:
    # The file stays, because its lock is on it.
    os.truncate(path, 0)
    for end in ("-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def _is_foreign(path: Path) -> bool:
    with closing(_connect(path)) as db:
        try:
            has_tables = db.execute("SELECT 1 FROM main.sqlite_schema LIMIT 1").fetchone()
            return bool(has_tables) and not is_copy(db)
        except sqlite3.DatabaseError as exc:
            if primary_code(exc) != sqlite3.SQLITE_CORRUPT:
                raise
            return False


def _is_damaged(path: Path) -> bool:
    with closing(_connect(path)) as db:
        try:
            if not is_copy(db):
                return False
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as exc:
            if primary_code(exc) != sqlite3.SQLITE_CORRUPT:
                raise
            return True
        return bool(found != "ok")


def _version_of(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)
