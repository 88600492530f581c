"""An index in a file of its own, or in memory: for pages that have no collector's store to read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ragtrace.answers.index.reading import AnswerIndex
from ragtrace.answers.index.sessions import put_session
from ragtrace.answers.index.sums import fold
from ragtrace.answers.index.tables import INDEX_TABLES
from ragtrace.answers.index.writes import forget, note_feedback, put, size
from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import WriteError
from ragtrace.sqlite_file import SqliteFileError, SqliteForm, open_private, open_temporary, transaction

_FORM: Final = SqliteForm(
    application_id=0x72616769,  # "ragi"
    steps=(INDEX_TABLES,),
    pragmas=("synchronous = NORMAL", "cache_size = -65536"),
)
_AT_ONCE: Final = 500
_MOST_ROWS: Final = 1_000_000


class OwnIndex(AnswerIndex):
    """An index that can also be filled. Threads take turns."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(self._turn)
        self._db = db
        self._lock = threading.Lock()  # one connection, and queries in several threads

    async def add(self, summaries: Iterable[AnswerSummary]) -> int:
        """Add answers, a few at a time, and return how many rows there are then.

        Beyond a million rows, the oldest are forgotten.

        Raises:
            WriteError: the file cannot be written; what was added before is kept.
        """
        waiting = list(summaries)
        for start in range(0, len(waiting), _AT_ONCE):
            await asyncio.to_thread(self._put, waiting[start : start + _AT_ONCE])
        return await asyncio.to_thread(self._settle)

    async def add_sessions(self, sessions: Sequence[SessionSummary]) -> None:
        """Add judged sessions.

        Raises:
            WriteError: the file cannot be written.
        """
        await asyncio.to_thread(self._put_sessions, sessions)

    async def note_feedback(self, key: AnswerKey, feedback: str) -> None:
        """Note ``up`` or ``down`` on an answer, which may come later.

        Raises:
            WriteError: the file cannot be written.
        """
        await asyncio.to_thread(self._note, key, feedback)

    async def aclose(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, transaction(self._db):
                yield self._db
        except sqlite3.Error as exc:
            raise WriteError(f"the index of answers cannot be written: {exc}") from exc

    def _put(self, summaries: Iterable[AnswerSummary]) -> None:
        with self._writing() as db:
            for summary in summaries:
                put(db, summary)

    def _settle(self) -> int:
        """Keep to the bound, make the sums, and return the number of rows."""
        with self._writing() as db:
            while forget(db, before_ns=0, most_rows=_MOST_ROWS, at_once=_AT_ONCE):
                pass
            while fold(db, at_once=_AT_ONCE, is_open=True):
                pass
            return size(db)

    def _put_sessions(self, sessions: Sequence[SessionSummary]) -> None:
        with self._writing() as db:
            for session in sessions:
                put_session(db, session)

    def _note(self, key: AnswerKey, feedback: str) -> None:
        with self._writing() as db:
            note_feedback(db, key, feedback)


def open_index(path: Path | None = None) -> OwnIndex:
    """Open or create an index in a file, or without one in memory, which ends with the program.

    Raises:
        WriteError: the file cannot be opened or is not an index; the message says why and what to do.
    """
    try:
        return OwnIndex(
            open_temporary(INDEX_TABLES) if path is None else open_private(path, _FORM, is_shared=True)
        )
    except (SqliteFileError, sqlite3.Error, OSError) as exc:
        raise WriteError(f"the index of answers {str(path)!r} cannot be opened: {exc}") from exc
