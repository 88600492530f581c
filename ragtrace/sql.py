"""What portable SQL needs of a connection, so that one statement runs on SQLite and on PostgreSQL; and the
library's own SQLite files: private, marked as its own, and refused with a reason.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ragtrace.files import make_folder, make_private


class Rows(Protocol):
    """What a statement returned."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row as a tuple, or ``None``."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left, as tuples."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Db(Protocol):
    """A connection inside a transaction, of any engine.

    Statements have ``?`` for each value, in order, and no function or clause that one engine lacks: explicit
    targets of ``ON CONFLICT``, flags as ``= 1``, ``CASE`` for the smaller of two values.
    """

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each row of values."""
        ...

    @property
    def writer(self) -> int:
        """The number of the process, among those that write the same tables; 0 where no other one does."""
        ...


def skip_locked(db: Db) -> str:
    """Return what a query ends with so that its rows are this transaction's, without those of another one."""
    return " FOR UPDATE SKIP LOCKED" if db.writer else ""


def keep_locked(db: Db) -> str:
    """Return what a query ends with so that its rows stay as they are until this transaction ends."""
    return " FOR UPDATE" if db.writer else ""


class SqliteDb(sqlite3.Connection):
    """A connection to a file that one process writes at a time; a `ragtrace.sql.Db`."""

    writer = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteForm:
    """What one kind of file holds, and how it is opened."""

    application_id: int
    """``PRAGMA application_id``: identifies the kind, so that no other program's database is written to."""
    schema: str
    version: int = 1
    """Changes with the schema."""
    pragmas: Sequence[str] = ()
    """Such as ``synchronous = NORMAL``; applied each time, before the file is read."""
    busy_s: float = 5.0
    """How long to wait for another program's lock."""
    discard: str = ""
    """Deletes what a file of another version holds; for what can be made again. Empty: it is refused."""


class SqliteFileError(OSError):
    """A file cannot be used; the message says why, and what to do."""

    def __init__(self, why: str, *, sqlite_errorcode: int = sqlite3.SQLITE_OK) -> None:
        super().__init__(why)
        self.sqlite_errorcode = sqlite_errorcode
        """As of ``sqlite3.Error``: `is_busy` reads it."""


def open_private(
    path: Path, form: SqliteForm, *, is_shared: bool = False, is_transactional: bool = False
) -> sqlite3.Connection:
    """Open or create a file that only its owner can read, with a write-ahead log.

    Args:
        path: Where it is; missing folders are created.
        form: What it holds.
        is_shared: Whether several threads use the connection; they take turns.
        is_transactional: Whether a write begins a transaction, which lasts until ``commit``.

    Raises:
        SqliteFileError: it is a link, no database, another program's, of another version, damaged or in use,
            or the disk is full. The file is left as it was.
        OSError: it cannot be created or opened.
    """
    try:
        make_folder(path.parent, mode=0o700)
        make_private(path)
        db = sqlite3.connect(
            path,
            timeout=form.busy_s,
            isolation_level="DEFERRED" if is_transactional else None,
            check_same_thread=not is_shared,
        )
        try:
            _prepare(db, form)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as exc:
        raise sqlite_fault(exc) from exc
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SqliteFileError(_FULL) from exc
        raise
    return db


def open_temporary(schema: str) -> SqliteDb:
    """Open a database without a name, which SQLite moves to disk if it is large, and deletes at the end.

    Raises:
        sqlite3.Error: the disk is full.
    """
    db = sqlite3.connect("", isolation_level=None, check_same_thread=False, factory=SqliteDb)
    db.executescript(schema)
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run a block as one transaction, which waits for other writers first."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has already ended it
            db.execute("ROLLBACK")
        raise


def primary_code(exc: Exception) -> int:
    """Return SQLite's primary result code, of which there are few; ``SQLITE_OK`` for another error."""
    code: int = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF  # the low byte of an extended code


def is_busy(exc: Exception) -> bool:
    """Return whether another program has the file locked, so that it may be free later."""
    return primary_code(exc) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _prepare(db: sqlite3.Connection, form: SqliteForm) -> None:
    for pragma in form.pragmas:
        db.execute(f"PRAGMA {pragma}")
    _refuse_foreign(db, form)
    db.execute("PRAGMA journal_mode = WAL")
    if _version(db) == form.version:
        return
    with transaction(db):
        if _version(db) != form.version:  # another process may have been first
            for statement in statements(form.discard + form.schema):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {form.application_id}")
            db.execute(f"PRAGMA user_version = {form.version}")


def _refuse_foreign(db: sqlite3.Connection, form: SqliteForm) -> None:
    if db.execute("SELECT name FROM sqlite_master").fetchone() is None:
        return
    (mark,) = db.execute("PRAGMA application_id").fetchone()
    if mark != form.application_id:
        raise SqliteFileError("it is another program's database: name another path")
    if not form.discard and (version := _version(db)) != form.version:
        raise SqliteFileError(
            f"another version of ragtrace wrote it: it has the form {version}, and this one {form.version}:"
            " name another path"
        )


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; ``executescript`` would end the transaction."""
    statement = ""
    for part in script.split(";")[:-1]:
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def sqlite_fault(exc: sqlite3.Error) -> SqliteFileError:
    """Return the error that says why, and what to do."""
    code = primary_code(exc)
    return SqliteFileError(_REASONS.get(code, str(exc)), sqlite_errorcode=code)


_FULL: Final = "its disk is full: make room"
_IN_USE: Final = "another program is using it: end that program, or wait for it"
_REASONS: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CORRUPT: "it is damaged: move it away, or restore a copy",
    sqlite3.SQLITE_NOTADB: "file is not a database: name another path",
}
"""By SQLite's primary result code."""
