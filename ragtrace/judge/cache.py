"""The cache of replies, the outermost layer: a bounded key-value file that several processes share.

The key of a request is all of its content: judge, step, instructions, material, form of the reply and
sampling, and the canary claims of the record. So a newer prompt asks anew, and a verdict stays with the
claims that were judged beside it: an instruction in one of them may have decided it. Errors are not cached,
nor replies that failed a canary claim or a check of their numbers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import DecidedBy, Usage
from ragtrace.ports import Clock, FreeText, Judge, JudgeReply, JudgeRequest
from ragtrace.process import SystemClock
from ragtrace.sql import SqliteForm, is_busy, open_private

_log = logging.getLogger(__name__)
T = TypeVar("T")
ReplyT = TypeVar("ReplyT", bound=BaseModel)

_VERSION: Final = 3
"""Part of every key: changes with the format of the entries."""
_WANTS_A_DRAW: Final = 0.1
"""Requests above this temperature are not cached: they need a new random draw each time."""
_PAGE_BYTES: Final = 4096
_LARGEST_SHARE: Final = 16
"""The largest value is this fraction of the file."""
_MAX_BYTES: Final = 256 << 20
"""Of the database file. While in use, it has a write-ahead log of a few megabytes."""
_FORGET_SOME: Final = (
    "DELETE FROM entries WHERE key IN"
    " (SELECT key FROM entries ORDER BY used LIMIT 1 + (SELECT count(*) FROM entries) / 10)"
)
_SCHEMA: Final = """\
CREATE TABLE IF NOT EXISTS entries (
    key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_used ON entries (used);
"""
_FORM: Final = SqliteForm(
    application_id=0x72616774,  # "ragt"
    schema=_SCHEMA,
    pragmas=(f"page_size = {_PAGE_BYTES}", "synchronous = NORMAL"),
    busy_s=2.0,
    discard="DROP TABLE IF EXISTS entries;",
)


def cached(judge: Judge, file: CacheFile, *, place: str = "") -> Judge:
    """Answer repeated requests from the file; such an answer has ``Usage(calls=0)``.

    Args:
        judge: Answers what is not in the cache.
        file: The cache; closed together with the judge.
        place: The judge's endpoint: elsewhere the same name may be another model.
    """
    return _Cached(judge, file, place)


def uncached(judge: Judge) -> Judge:
    """Return a judge without its cache, for example to test whether the endpoint answers."""
    return judge.inner if isinstance(judge, _Cached) else judge


class _Cached(JudgeLayer):
    def __init__(self, judge: Judge, file: CacheFile, place: str) -> None:
        super().__init__(judge)
        self._file = file
        self._who = [_VERSION, *judge.identity.named, place]

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        if request.sampling and (request.sampling.temperature or 0.0) > _WANTS_A_DRAW:
            return await self.inner.ask(request)
        key = digest([*asked(request, self._who), request.user, request.canaries, request.max_output_tokens])
        found = await self._file.get(key)
        if found is not None and (known := read_reply(found, request.reply_type)):
            return known
        reply = await self.inner.ask(request)
        if not (isinstance(reply.value, FreeText) and reply.value.cut_off) and _is_believed(reply, request):
            await self._file.put(key, write_reply(reply))
        return reply

    async def aclose(self) -> None:
        await self.inner.aclose()
        await self._file.aclose()


def _is_believed(reply: JudgeReply[ReplyT], request: JudgeRequest[ReplyT]) -> bool:
    """Return whether the request's canary claims were judged correctly, and each number once."""
    try:
        if request.check:
            request.check(reply.value)
    except JudgeError:
        return False
    return True


def asked(request: JudgeRequest[Any], who: list[Any]) -> list[Any]:
    """List the parts of a request except its material: who is asked, what for, and the form of the reply."""
    sampling = asdict(request.sampling) if request.sampling else None
    form: type[BaseModel] = request.reply_type
    return [*who, request.step, request.system, _form(form), sampling]


@lru_cache(maxsize=256)
def _form(reply_type: type[BaseModel]) -> str:
    return json.dumps([reply_type.__qualname__, reply_type.model_json_schema()], sort_keys=True)


def digest(parts: list[Any]) -> bytes:
    """Return the SHA-256 of JSON values."""
    return hashlib.sha256(as_json(parts)).digest()


def as_json(value: Any) -> bytes:
    """Encode equal values to equal bytes."""
    return json.dumps(value, sort_keys=True, default=str).encode()  # ASCII: lone surrogates pass


def write_reply(reply: JudgeReply[Any]) -> bytes:
    """Encode the judge's reply without its usage."""
    value = reply.value.model_dump(by_alias=True)
    kept = {"value": value, "abstained": sorted(reply.abstained), "notes": dict(reply.notes)}
    sometimes = {"support": dict(reply.support), "decided_by": dict(reply.decided_by)}
    return as_json({**kept, **{name: said for name, said in sometimes.items() if said}})


def read_reply(
    kept: bytes, reply_type: type[ReplyT], *, usage: Usage | None = None
) -> JudgeReply[ReplyT] | None:
    """Decode what `write_reply` wrote; ``None`` (a miss) if it has another form."""
    try:
        stored = json.loads(kept)
        return JudgeReply(
            value=reply_type.model_validate(stored["value"]),
            usage=usage or Usage(),
            abstained=frozenset(stored["abstained"]),
            notes={int(number): note for number, note in stored["notes"].items()},
            support={int(number): support for number, support in stored.get("support", {}).items()},
            decided_by={int(number): DecidedBy(who) for number, who in stored.get("decided_by", {}).items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def default_cache_path() -> Path:
    """Return ``judge.db`` in the user's cache folder (``XDG_CACHE_HOME``, else ``~/.cache``)."""
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder).expanduser() / "ragtrace" / "judge.db"


class CacheFile:
    """Keeps values by key on disk; if it is full, it deletes those that were written first.

    The values hold content: only the owner can read the file (mode 0600). If it cannot be used, one warning
    is logged. From then on every look-up misses and nothing is stored: a cache never stops judging.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = _MAX_BYTES, clock: Clock | None = None) -> None:
        self._path = Path(path).expanduser()
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        # its own thread: waiting for another process's lock must not block the event loop
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ragtrace-cache")
        self._database: sqlite3.Connection | None = None
        self._broken = False

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, if it is stored."""
        query = "SELECT value FROM entries WHERE key = ?"
        row: tuple[bytes] | None = await self._tried(lambda db: db.execute(query, (key,)).fetchone())
        return row[0] if row else None

    async def put(self, key: bytes, value: bytes) -> None:
        """Store a value."""
        row = key, value, self._clock.now_ns()

        def keep(database: sqlite3.Connection) -> None:
            while True:
                try:
                    database.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", row)
                except sqlite3.OperationalError as exc:
                    if exc.sqlite_errorcode != sqlite3.SQLITE_FULL:
                        raise
                    if not database.execute(_FORGET_SOME).rowcount:
                        return  # the value exceeds the file's limit
                else:
                    return

        if len(value) <= self._max_bytes // _LARGEST_SHARE:
            await self._tried(keep)

    async def aclose(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _tried(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._try, work)

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._broken:
            return None
        try:
            if self._database is None:
                self._database = open_private(self._path, _FORM)
                self._database.execute(f"PRAGMA max_page_count = {self._max_bytes // _PAGE_BYTES}")
            return work(self._database)
        except (sqlite3.Error, OSError) as exc:
            if not is_busy(exc):
                self._broken = True
                self._close()
                _log.warning(
                    "the judge's cache %s cannot be used (%s): judging continues without it;"
                    " delete the file or set another path",
                    self._path,
                    exc,
                )
            return None

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
