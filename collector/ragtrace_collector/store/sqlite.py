"""A store in one SQLite file: WAL, ``synchronous=FULL``, group commit.

A commit costs one write to the disk whatever it holds, so callers share it: each transaction takes what was
submitted meanwhile (measured: as fast as ``NORMAL`` from ten rows a commit). The file is locked against a
second collector, and looked at while it is in use: SQLite goes on writing into a deleted file, and what it
commits there is lost when the process ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from ragtrace.errors import ConfigError
from ragtrace.sql import Db, SqliteDb, primary_code, statements, transaction
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.database import Commits, Submission
from ragtrace_collector.store.records import StoreUnavailable, StoreUnreadable, UnfitFile
from ragtrace_collector.store.tables import TABLES, VERSION, triggers
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


_Identity = tuple[int, int]
"""Device and inode."""


def lock_file(path: Path) -> IO[bytes]:
    """Lock the store against a second collector, because both would judge the same answers.

    The lock is on a file next to it, which other programs can read. It holds through symbolic links.

    Raises:
        ConfigError: another collector has it, it cannot be locked, or has a second name.
    """
    try:
        real = path.resolve()
        lock = real.with_name(f"{real.name}.lock").open("ab")
    except (OSError, ValueError) as exc:  # ValueError: the path is not a file name
        raise unusable(path, exc) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        lock.close()
        raise ConfigError(
            f"`store.path`: {str(path)!r} is in use by another collector: "
            "stop it, or give this one a path of its own"
        ) from exc
    if real.exists() and os.stat(real).st_nlink > 1:
        lock.close()
        raise ConfigError(
            f"`store.path`: {str(path)!r} has a second name (a hard link): SQLite keeps a log for each name, "
            "and what is written under one is not visible under the other: remove the other name; to copy "
            "a store, use SQLite's `VACUUM INTO`"
        )
    return lock


def _identity_or_none(path: Path) -> _Identity | None:
    with suppress(OSError):
        return _identity(path)
    return None


def _identity(file: Path) -> _Identity:
    found = os.stat(file)
    return found.st_dev, found.st_ino


DAMAGED: Final = (
    "restore a backup, or save what can be read (`python -m ragtrace_collector.store.recovery STORE NEW`), "
    "or move the file away to start with an empty one"
)


def unusable(path: Path, exc: Exception) -> ConfigError:
    """Return the error for a file that cannot be used as a store, with advice."""
    return ConfigError(f"`store.path`: {str(path)!r} cannot be used as a SQLite file ({exc}): {_advice(exc)}")


def unreadable(path: Path, exc: sqlite3.Error) -> StoreUnreadable:
    """Return the error for a file that cannot be read as a store, with advice."""
    what = str(exc).partition(" with text ")[0]  # behind it SQLite quotes the content
    return StoreUnreadable(f"{str(path)!r} cannot be read as a collector's store ({what}): {_advice(exc)}")


def _advice(exc: Exception) -> str:
    if isinstance(exc, UnfitFile):
        return exc.advice
    return _ADVICE.get(primary_code(exc), _ADVICE[sqlite3.SQLITE_CANTOPEN])


_ADVICE: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_ERROR: DAMAGED,  # a table or a column is missing
    sqlite3.SQLITE_CANTOPEN: "name a writable path whose folder exists",
    sqlite3.SQLITE_BUSY: "another program holds it locked; end that program",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: f"name another path; if this was a store, {DAMAGED}",
}
"""By SQLite's primary result code."""


T = TypeVar("T")

_BUSY_TIMEOUT_S: Final = 5.0
"""How long to wait for another program's lock on the file."""
LOG_BYTES: Final = 16 << 20
"""The size to which the write-ahead log is truncated after a checkpoint."""
_PAGES_AT_ONCE: Final = 1_000
_SPARE: Final = 4
"""Free pages are kept up to this share of those in use: at a steady rate they are soon needed again."""


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A [`Database`][ragtrace_collector.store.database.Database] in one file. One collector at a time."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @contextmanager
    def reading(self) -> Iterator[SqliteDb]:
        if not self.path.is_file():
            raise StoreUnreadable(
                f"there is no store {str(self.path)!r}: name `store.path` of the collector's configuration"
            )
        try:
            with closing(_open_to_read(self.path)) as db:
                db.execute("BEGIN")
                refuse_others(db)
                yield db
        except sqlite3.Error as exc:
            raise unreadable(self.path, exc) from exc

    async def open(self, cipher: PayloadCipher, *, is_collector: bool) -> SqliteCommits:
        lock = lock_file(self.path) if is_collector else None
        commits = SqliteCommits(self.path, cipher, lock)
        try:
            await commits.open()
        except (sqlite3.Error, OSError) as exc:
            if lock is not None:
                lock.close()
            raise unusable(self.path, exc) from exc
        return commits

    def used_bytes(self, db: Db) -> int:
        return _pages_in_use(db) * _one(db, "PRAGMA page_size")


class _LostFile(sqlite3.OperationalError):
    """One of the store's files is not the one that was opened."""


class SqliteCommits(Commits):
    """The [`Commits`][ragtrace_collector.store.database.Commits] of a file."""

    def __init__(self, path: Path, cipher: PayloadCipher, lock: IO[bytes] | None) -> None:
        super().__init__()
        self._path = path
        self._cipher = cipher
        self._lock = lock

    def shrink(self, db: Db) -> bool:
        spare = _one(db, "PRAGMA freelist_count") - _pages_in_use(db) // _SPARE
        # One page a statement: the driver steps this pragma once, whatever its argument.
        for _ in range(min(_PAGES_AT_ONCE, spare)):
            db.execute("PRAGMA incremental_vacuum(1)")
        return spare > _PAGES_AT_ONCE

    def is_alone(self, db: Db) -> bool:
        return True  # the lock sees to it

    async def aclose(self) -> None:
        await super().aclose()
        if self._lock is not None:
            self._lock.close()

    def _begin(self) -> None:
        self._connection = self._connect()
        real = self._path.resolve()  # SQLite puts its other files there
        paths = (self._path, *(real.with_name(f"{real.name}-{end}") for end in ("wal", "shm")))
        self._opened_files = {path: _identity(path) for path in paths}

    def _end(self) -> None:
        self._connection.close()

    def _trouble(self, exc: Exception) -> StoreUnavailable | None:
        if isinstance(exc, sqlite3.OperationalError):  # such as: database or disk is full
            return StoreUnavailable(f"the store cannot be used: {exc}")
        if primary_code(exc) != sqlite3.SQLITE_CORRUPT:
            return None
        return StoreUnavailable(f"the store is damaged ({exc}): stop the collector, then {DAMAGED}")

    def _connect(self) -> SqliteDb:
        # It holds content: only its owner may read it. SQLite gives its other files the same mode.
        self._path.touch(mode=0o600)
        connection = sqlite3.connect(
            self._path, isolation_level=None, timeout=_BUSY_TIMEOUT_S, factory=SqliteDb
        )
        try:
            prepare(connection)  # first, so that a refused file stays unchanged
            self._cipher.check(connection)
            (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if journal != "wal":
                raise sqlite3.OperationalError("no write-ahead log can be kept here, as on a network's disk")
            connection.execute("PRAGMA synchronous=FULL")
            # Some systems build SQLite to write zeros over what is deleted. Measured, that is two fifths of
            # the cost of forwarding, and copies may be in the log anyway: encryption is what hides content.
            connection.execute("PRAGMA secure_delete=FAST")
            connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
            connection.execute("SELECT 1 FROM sqlite_schema").close()  # now the log is there
        except BaseException:
            connection.close()
            raise
        return connection

    def _results(self, group: Sequence[Submission]) -> Sequence[Any]:
        """Return what is told of a group, an exception if it failed. Only a commit that was seen succeeds."""
        connection = self._connection
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

    def _committed(self, connection: SqliteDb, group: Sequence[Submission]) -> list[Any]:
        _roll_back(connection)  # the group before, if its own rollback failed
        self._refuse_other_files(connection)
        connection.execute("BEGIN IMMEDIATE")
        results = [_run_one(connection, each) for each in group]
        connection.execute("COMMIT")
        return results

    def _refuse_other_files(self, connection: sqlite3.Connection) -> None:
        """Data written into a moved or deleted file would be lost after a restart.

        A deleted log held acknowledged data: it is written into the store, if that is safe.
        """
        files = self._opened_files.items()
        gone = [path for path, identity in files if _identity_or_none(path) != identity]
        if not gone:
            return
        if self._path in gone:
            raise _LostFile("its file was moved, deleted or replaced while it was in use")
        names = " and ".join(repr(str(path)) for path in gone)
        trouble = (
            f"{names} was moved, deleted or replaced while it was in use: "
            "stop the collector and start it again"
        )
        # Through another log, another program may have written: both would overwrite each other.
        if not any(path.exists() for path in gone) and _is_emptied(connection):
            trouble += "; what was acknowledged before was written into the store itself"
        raise _LostFile(trouble)


def _run_one(connection: SqliteDb, one: Submission) -> Any:
    connection.execute("SAVEPOINT one")
    try:
        result = one.work(connection)
    except Exception as exc:
        if isinstance(exc, MemoryError) or not connection.in_transaction:
            raise  # the whole group: on a full disk, SQLite has rolled it back itself
        connection.execute("ROLLBACK TO one")
        result = exc
    connection.execute("RELEASE one")
    return result


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


def prepare(db: sqlite3.Connection) -> None:
    """Create the tables in an empty file.

    Raises:
        sqlite3.Error: it is not a database, cannot be written, is damaged, holds another program's tables, or
            was written by another ragtrace. It is left as it was.
    """
    # Measured: half a second a gigabyte in memory. Without it, senders would meet the damage later.
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise UnfitFile(f"it is damaged: {' '.join(found.split())}", DAMAGED)
    refuse_others(db)
    db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # takes effect in a new file only
    with transaction(db):
        if not refuse_others(db):  # another process may have been first
            for statement in statements(SCHEMA):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")


def _sqlite_schema() -> str:
    schema = TABLES
    for trigger in triggers():
        when = f" WHEN {trigger.when}" if trigger.when else ""
        schema += f"CREATE TRIGGER {trigger.name} {trigger.event}{when} BEGIN {trigger.body} END;\n"
    schema = re.sub(r"before_colon\((\w+)\)", r"substr(\1, 1, instr(\1 || ':', ':') - 1)", schema)
    schema = re.sub(r"behind_colon\((\w+)\)", r"substr(\1, instr(\1 || ':', ':') + 1)", schema)
    return schema.replace("this_writer()", "0")


SCHEMA: Final = _sqlite_schema()
"""The tables and triggers, as SQLite takes them."""


def refuse_others(db: sqlite3.Connection) -> bool:
    """Say whether a file holds a store; ``False`` for a new one.

    Raises:
        UnfitFile: it holds another program's tables, or was written by another ragtrace.
        sqlite3.Error: it cannot be read.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and not (version and tables >= _OURS):
        raise UnfitFile("it holds the tables of another program", "give the collector a path of its own")
    if tables and version != VERSION:
        raise UnfitFile(
            f"it was written by another ragtrace: it is of version {version}, and this one knows {VERSION}",
            "start the ragtrace that wrote it, or name another path",
        )
    return bool(tables)


_OURS: Final = frozenset({"slice", "trace", "job", "parcel"})


def check_owner(path: Path) -> None:
    """Check that a database is a store, or an empty one. Nothing is created, and nobody is kept waiting.

    Raises:
        ConfigError: it holds another program's tables, or was written by another ragtrace.
    """
    # immutable: without it, files for the log would be made beside one that nobody has open
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as db:
            refuse_others(db)
    except UnfitFile as exc:
        raise unusable(path, exc) from exc
    except sqlite3.Error:
        pass  # a collector may write there at this moment; one that starts looks at all of it


def _open_to_read(path: Path) -> SqliteDb:
    address = f"{path.absolute().as_uri()}?mode=ro"
    db = sqlite3.connect(address, uri=True, isolation_level=None, factory=SqliteDb)
    try:
        db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").close()
    except sqlite3.OperationalError:
        db.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # In a read-only folder, SQLite cannot create the files that readers of a log share.
        return sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None, factory=SqliteDb)
    return db


def _pages_in_use(db: Db) -> int:
    return _one(db, "PRAGMA page_count") - _one(db, "PRAGMA freelist_count")


def _one(db: Db, query: str) -> int:
    value: int = db.execute(query).fetchone()[0]
    return value
