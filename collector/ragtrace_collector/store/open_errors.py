"""Error messages for a store that cannot be opened, with advice."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ragtrace.errors import ConfigError, ReadError
from ragtrace.sqlite_file import primary_code
from ragtrace_collector.store._files import StoreLock

DAMAGED: Final = (
    "restore a backup, or save what can be read (`python -m ragtrace_collector.store.recovery STORE NEW`), "
    "or move the file away to start with an empty one"
)


class UnfitFile(sqlite3.DatabaseError):
    """A file is a database that this ragtrace cannot use."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(why)
        self.advice = advice


def lock_file(path: Path) -> StoreLock:
    """Lock the file against a second collector.

    Raises:
        ConfigError: another collector has it, or it cannot be locked.
    """
    try:
        return StoreLock(path)
    except (OSError, ValueError) as exc:  # ValueError: the path is not a file name
        raise unusable(path, exc) from exc


def unusable(path: Path, exc: Exception) -> ConfigError:
    """Return the error for a file that cannot be used as a store, with advice."""
    return ConfigError(f"`store.path`: {str(path)!r} cannot be used as a SQLite file ({exc}): {_advice(exc)}")


def unreadable(path: Path, exc: sqlite3.Error) -> ReadError:
    """Return the error for a file that cannot be read as a store, with advice."""
    what = str(exc).partition(" with text ")[0]  # behind it SQLite quotes the content
    return ReadError(f"{str(path)!r} cannot be read as a collector's store ({what}): {_advice(exc)}")


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
