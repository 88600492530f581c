"""Find lines of files by an id in them, without reading the other lines each time."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from ragtrace.sqlite_file import open_temporary, transaction

_HEAD_BYTES: Final = 4 << 10
_SCHEMA: Final = """
    CREATE TABLE line (file INTEGER, id TEXT, start INTEGER, length INTEGER, PRIMARY KEY (file, id, start))
    WITHOUT ROWID;
    CREATE INDEX by_start ON line (file, start);
"""
_FIND: Final = "SELECT start, length FROM line WHERE file = ? AND id = ? ORDER BY start"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scanned:
    """How much of a file was scanned."""

    file: int
    inode: int
    head: bytes
    """Digest of its first bytes: a file that was written again has others."""
    end: int
    """Where its last whole line ends."""
    size: int
    mtime_ns: int

    def is_of(self, stat: os.stat_result) -> bool:
        """Return whether the file is still the same."""
        return (self.size, self.mtime_ns, self.inode) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)


class FoundLine(NamedTuple):
    """A line with the id, and where it starts in its file."""

    start: int
    text: bytes


class LineIndex:
    """Knows in which lines of files an id is. It scans a file once, and later only what was appended.

    The index is a temporary database, on disk if it is large. Several threads may use it.
    """

    def __init__(self, ids_of: Callable[[bytes], Iterable[str]]) -> None:
        """``ids_of`` returns the ids in a line."""
        self._ids_of = ids_of
        self._db = open_temporary(_SCHEMA)
        self._scanned: dict[Path, _Scanned] = {}
        self._one = threading.Lock()

    def lines(self, path: Path, wanted: str) -> list[FoundLine]:
        """Return the lines with this id, in their order.

        Raises:
            OSError: the file cannot be read, or the disk is full.
        """
        try:
            with self._one, path.open("rb") as file:
                number = self._refreshed(path, file).file
                rows = self._db.execute(_FIND, (number, wanted)).fetchall()
                return [FoundLine(start, _read(file, start, length)) for start, length in rows]
        except sqlite3.Error as exc:
            raise OSError(f"its index cannot be kept: {exc}") from exc

    def close(self) -> None:
        """Delete the index."""
        with self._one:
            self._db.close()

    def _refreshed(self, path: Path, file: BinaryIO) -> _Scanned:
        stat = path.stat()
        head = hashlib.sha256(file.read(_HEAD_BYTES)).digest()
        known = self._scanned.get(path)
        if known and (known.size, known.mtime_ns, known.inode) == (
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ino,
        ):
            return known
        if known is None or not _has_grown(known, stat.st_ino, stat.st_size, file):
            number = known.file if known else len(self._scanned)
            known = _Scanned(file=number, inode=0, head=head, end=0, size=0, mtime_ns=0)
        end = self._scan(known.file, file, known.end)
        self._scanned[path] = _Scanned(
            file=known.file,
            inode=stat.st_ino,
            head=head,
            end=end,
            size=stat.st_size,
            mtime_ns=stat.st_mtime_ns,
        )
        return self._scanned[path]

    def _scan(self, number: int, file: BinaryIO, begin: int) -> int:
        """Note the ids from this place on, and return where the last whole line ends."""
        end = begin
        file.seek(begin)
        with transaction(self._db):
            self._db.execute("DELETE FROM line WHERE file = ? AND start >= ?", (number, begin))
            for start, line in _lines(file, begin):
                rows = [(number, found, start, len(line)) for found in set(self._ids_of(line))]
                self._db.executemany("INSERT INTO line VALUES (?, ?, ?, ?)", rows)
                if line.endswith(b"\n"):
                    end = start + len(line)
        return end


def _has_grown(known: _Scanned, inode: int, size: int, file: BinaryIO) -> bool:
    """Return whether the file is the same with more at its end."""
    if inode != known.inode or size <= known.size:
        return False
    return hashlib.sha256(_read(file, 0, min(_HEAD_BYTES, known.size))).digest() == known.head


def _lines(file: BinaryIO, begin: int) -> Iterator[tuple[int, bytes]]:
    for line in file:
        yield begin, line
        begin += len(line)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)
