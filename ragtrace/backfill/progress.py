"""The progress of back-fills, on disk: a stopped run can resume, and no run pays twice."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Self

from ragtrace.budget import Spend
from ragtrace.errors import ConfigError
from ragtrace.files.state import state_folder
from ragtrace.sqlite_file import SqliteForm, is_busy, open_private, primary_code, sqlite_fault, transaction

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS carrier (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, payload BLOB,
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS carrier_waiting ON carrier (trace_id) WHERE payload IS NOT NULL;
CREATE TABLE IF NOT EXISTS run (
    name TEXT PRIMARY KEY, since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL, reached_ns INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    run TEXT PRIMARY KEY, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, usd_nano INTEGER NOT NULL)
    WITHOUT ROWID;
"""
_SESSIONS: Final = """
CREATE TABLE session_turn (
    evaluator TEXT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, start_ns INTEGER NOT NULL,
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, carrier TEXT NOT NULL, bare BLOB NOT NULL, turn BLOB,
    place BLOB NOT NULL, digest TEXT NOT NULL DEFAULT '', checked BLOB, told TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (evaluator, tenant, session, start_ns, trace_id, span_id)) WITHOUT ROWID;
CREATE TABLE session (
    evaluator TEXT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, newest_ns INTEGER NOT NULL,
    is_open INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (evaluator, tenant, session)) WITHOUT ROWID;
CREATE INDEX session_open ON session (evaluator, newest_ns) WHERE is_open = 1;
"""
_FORM: Final = SqliteForm(
    application_id=0x72616770,  # "ragp"
    steps=(_SCHEMA, _SESSIONS),
    pragmas=("locking_mode = EXCLUSIVE",),  # two runs over one file would both pay
    busy_s=0,
    unmarked_tables=frozenset({"carrier"}),
)

_IN_USE: Final = (
    "another back-fill is using it, and both would pay for the same answers: wait for it, or name another "
    "file with --progress"
)
_DAMAGED: Final = (
    "it is damaged: move it away, or restore a copy. Without it, answers are judged again whose carriers are "
    "neither in the source nor in the destination"
)


class Progress:
    """The carriers that were built, the unsent ones, and how far each run came.

    A carrier is stored until the destination has it, so that an answer is paid for once even if the run
    stops. Use it in a ``with`` statement.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()
        self._is_open = False

    def __enter__(self) -> Self:
        """Open the file (readable by its owner only).

        Raises:
            ConfigError: it cannot be used.
        """
        try:
            self._db = open_private(self._path, _FORM, is_shared=True)
        except OSError as exc:
            hint = _IN_USE if is_busy(exc) else exc
            raise ConfigError(f"the progress file {str(self._path)!r} cannot be used: {hint}") from exc
        self._is_open = True
        try:
            with self._using() as db:
                if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError(_DAMAGED)
        except BaseException:
            self._db.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A cancelled task may leave a writing thread: SQLite crashes if the file is closed meanwhile.
        with self._writing:
            self._is_open = False
            self._db.close()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._db
        except sqlite3.Error as exc:
            is_damaged = primary_code(exc) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            why = _DAMAGED if is_damaged or str(exc) == _DAMAGED else sqlite_fault(exc)
            raise ConfigError(f"the progress file {str(self._path)!r} cannot be used: {why}") from exc

    @staticmethod
    def default_path(*, source: str, destination: str) -> Path:
        """Return the default progress file for a source and a destination."""
        name = hashlib.sha256(f"{source}|{destination}".encode()).hexdigest()[:16]
        return state_folder() / "backfill" / f"{name}.db"

    def has(self, trace_id: str, span_id: str) -> bool:
        """Return whether this carrier was built before."""
        return bool(self.rows("SELECT 1 FROM carrier WHERE trace_id = ? AND span_id = ?", trace_id, span_id))

    async def keep(self, trace_id: str, span_id: str, payload: bytes) -> None:
        """Store a carrier until it is sent."""
        await self._write("INSERT OR REPLACE INTO carrier VALUES (?, ?, ?)", trace_id, span_id, payload)

    async def sent(self, trace_id: str, span_id: str) -> None:
        """Mark a carrier as sent, and delete its payload."""
        await self._write(
            "UPDATE carrier SET payload = NULL WHERE trace_id = ? AND span_id = ?", trace_id, span_id
        )

    def waiting(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield trace id, span id and payload of the carriers that an earlier run did not send."""
        query = "SELECT trace_id, span_id, payload FROM carrier WHERE payload IS NOT NULL"
        yield from ((trace_id, span_id, payload) for trace_id, span_id, payload in self.rows(query))

    def begin(self, run: str, *, since_ns: int, until_ns: int) -> None:
        """Record the time range of a run, replacing an earlier run of this name and what that
        one spent."""
        self._write_now(
            [
                ("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?)", (run, since_ns, until_ns, since_ns)),
                ("DELETE FROM spent WHERE run = ?", (run,)),
            ]
        )

    def unfinished(self, run: str) -> tuple[int, int, int] | None:
        """Return since, until and the reached time of an unfinished run of this name."""
        query = "SELECT since_ns, until_ns, reached_ns FROM run WHERE name = ? AND reached_ns < until_ns"
        return next(((since, until, reached) for since, until, reached in self.rows(query, run)), None)

    async def reached(self, run: str, time_ns: int) -> None:
        """Record that everything before this moment is done."""
        await self._write("UPDATE run SET reached_ns = ? WHERE name = ?", time_ns, run)

    def spent(self, run: str) -> Spend:
        """Return what a run has spent; pending requests count by their estimates."""
        for calls, tokens, usd_nano in self.rows(
            "SELECT calls, tokens, usd_nano FROM spent WHERE run = ?", run
        ):
            return Spend(calls=calls, tokens=tokens, usd_nano=usd_nano)
        return Spend()

    async def spend(self, run: str, amount: Spend) -> None:
        """Add to what a run has spent; a negative amount corrects an estimate."""
        await self._write(
            "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls,"
            " tokens = tokens + excluded.tokens, usd_nano = usd_nano + excluded.usd_nano",
            *(run, amount.calls, amount.tokens, amount.usd_nano),
        )

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._using() as db:
            return db.execute(query, values).fetchall()

    async def write(self, *statements: tuple[str, Sequence[object]]) -> None:
        """Execute statements as one transaction."""
        await asyncio.to_thread(self._write_now, statements)

    async def _write(self, statement: str, *values: object) -> None:
        await self.write((statement, values))

    def _write_now(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        with self._writing:
            if self._is_open:
                with self._using() as db, transaction(db) if len(statements) > 1 else nullcontext():
                    for statement, values in statements:
                        db.execute(statement, values)
