"""A bounded key-value file that several processes share. Its failures never stop judging.

The values are a judge's replies, so they hold content: only the owner can read the file (mode 0600).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from ragtrace.clock import SystemClock
from ragtrace.ports import Clock
from ragtrace.sqlite_file import SqliteForm, is_busy, open_private, transaction

_log = logging.getLogger(__name__)
T = TypeVar("T")

_PAGE_BYTES: Final = 4096
_LARGEST_SHARE: Final = 16
"""The largest value is this fraction of the file."""
_KEYS_A_QUERY: Final = 500
_SCHEMA: Final = """\
CREATE TABLE IF NOT EXISTS entries (
    key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_used ON entries (used);
"""
_FORM: Final = SqliteForm(
    application_id=0x72616774,  # "ragt"
    steps=(_SCHEMA,),
    pragmas=(f"page_size = {_PAGE_BYTES}", "synchronous = NORMAL"),
    busy_s=2.0,
    discard="DROP TABLE IF EXISTS entries",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Path and size limit of the cache of replies."""

    path: str | Path
    max_bytes: int = 256 * 1024 * 1024
    """Limit of the database file. While in use, it has a write-ahead log of a few megabytes."""


def default_cache_path() -> Path:
    """Return ``judge.db`` in the user's cache folder (``XDG_CACHE_HOME``, else ``~/.cache``)."""
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder).expanduser() / "ragtrace" / "judge.db"


class CacheFile:
    """Keeps values by key on disk; if it is full, it deletes the least recently used ones.

    If the file cannot be used, it logs one warning. From then on every look-up misses and nothing is stored.
    """

    def __init__(self, settings: CacheSettings, *, clock: Clock | None = None) -> None:
        self._path = Path(settings.path).expanduser()
        self._max_bytes = max(settings.max_bytes, 16 * _PAGE_BYTES)
        self._clock = clock or SystemClock()
        # its own thread: waiting for another process's lock must not block the event loop
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ragtrace-cache")
        self._database: sqlite3.Connection | None = None
        self._touched: dict[bytes, int] = {}
        self._broken = False
        self._closed = False

    async def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the values of the keys that are stored."""
        return await self._in_thread(lambda: self._tried(lambda database: self._find(database, keys), {}))

    async def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Store values."""
        small = {k: v for k, v in entries.items() if len(v) <= self._max_bytes // _LARGEST_SHARE}
        if small:
            await self._in_thread(lambda: self._tried(lambda database: self._keep(database, small), None))

    async def aclose(self) -> None:
        """Close the file. Closing twice is allowed."""
        if not self._closed:
            self._closed = True
            await self._in_thread(self._close)
            self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _tried(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        if self._broken:
            return otherwise
        try:
            if self._database is None:
                self._database = _opened(self._path, self._max_bytes)
            return work(self._database)
        except (sqlite3.Error, OSError) as exc:
            if not is_busy(exc):
                self._give_up(exc)
            return otherwise

    def _find(self, database: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _KEYS_A_QUERY):
            some = keys[start : start + _KEYS_A_QUERY]
            marks = ",".join("?" * len(some))
            found.update(database.execute(f"SELECT key, value FROM entries WHERE key IN ({marks})", some))
        self._touched.update(dict.fromkeys(found, self._clock.now_ns()))
        return found

    def _keep(self, database: sqlite3.Connection, entries: Mapping[bytes, bytes]) -> None:
        while True:
            try:
                self._write(database, entries)
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
                if not _forget_some(database):
                    return  # the entries exceed the file's limit
            else:
                return

    def _write(self, database: sqlite3.Connection, entries: Mapping[bytes, bytes]) -> None:
        now = self._clock.now_ns()
        with transaction(database):
            # times of use are written with the next value: a hit alone writes nothing
            touched = [(used, key) for key, used in self._touched.items()]
            database.executemany("UPDATE entries SET used = ? WHERE key = ?", touched)
            rows = [(key, value, now) for key, value in entries.items()]
            database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
        self._touched.clear()

    def _close(self) -> None:
        if self._touched:
            self._tried(lambda database: self._write(database, {}), None)
        if self._database is not None:
            self._database.close()
            self._database = None

    def _give_up(self, exc: Exception) -> None:
        self._broken = True
        if self._database is not None:
            self._database.close()
            self._database = None
        _log.warning(
            "the judge's cache %s cannot be used (%s): judging continues without it;"
            " delete the file or set another path",
            self._path,
            exc,
        )


def _opened(path: Path, max_bytes: int) -> sqlite3.Connection:
    database = open_private(path, _FORM)
    try:
        _shrink(database, max_bytes)
        database.execute(f"PRAGMA max_page_count = {max_bytes // _PAGE_BYTES}")
    except BaseException:
        database.close()
        raise
    return database


def _shrink(database: sqlite3.Connection, max_bytes: int) -> None:
    """Shrink a file that had a higher limit before."""
    if _number(database, "PRAGMA page_count") * _PAGE_BYTES <= max_bytes:
        return
    while _pages_in_use(database) * _PAGE_BYTES > max_bytes and _forget_some(database):
        pass
    database.execute("VACUUM")


def _pages_in_use(database: sqlite3.Connection) -> int:
    return _number(database, "PRAGMA page_count") - _number(database, "PRAGMA freelist_count")


def _forget_some(database: sqlite3.Connection) -> bool:
    """Delete the least recently used tenth; return whether anything was deleted."""
    with transaction(database):
        some = _number(database, "SELECT count(*) FROM entries") // 10 + 1
        gone = database.execute(
            "DELETE FROM entries WHERE key IN (SELECT key FROM entries ORDER BY used LIMIT ?)", (some,)
        )
    return gone.rowcount > 0


def _number(database: sqlite3.Connection, query: str) -> int:
    value = database.execute(query).fetchone()[0]
    assert isinstance(value, int)
    return value
