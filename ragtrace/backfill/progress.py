"""The progress of back-fills, on disk: a stopped run can resume, and no run pays twice."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, Self

from ragtrace.budget import Spend
from ragtrace.errors import ConfigError
from ragtrace.files.state import state_folder
from ragtrace.sqlite_file import SqliteForm, open_private, transaction

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
    unmarked_tables=frozenset({"carrier"}),
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
            raise ConfigError(f"the progress file {str(self._path)!r} cannot be used: {exc}") from exc
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        # A cancelled task may leave a writing thread: SQLite crashes if the file is closed meanwhile.
        with self._writing:
            self._is_open = False
            self._db.close()

    @staticmethod
    def default_path(*, source: str, destination: str) -> Path:
        """Return the default progress file for a source and a destination."""
        name = hashlib.sha256(f"{source}|{destination}".encode()).hexdigest()[:16]
        return state_folder() / "backfill" / f"{name}.db"

    def has(self, trace_id: str, span_id: str) -> bool:
        """Return whether this carrier was built before."""
        row = self._db.execute(
            "SELECT 1 FROM carrier WHERE trace_id = ? AND span_id = ?", (trace_id, span_id)
        ).fetchone()
        return row is not None

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
        yield from self._db.execute(
            "SELECT trace_id, span_id, payload FROM carrier WHERE payload IS NOT NULL"
        ).fetchall()

    def begin(self, run: str, *, since_ns: int, until_ns: int) -> None:
        """Record the time range of a run, replacing an earlier run of this name and what that
        one spent."""
        self._db.execute(
            "INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?)", (run, since_ns, until_ns, since_ns)
        )
        self._db.execute("DELETE FROM spent WHERE run = ?", (run,))

    def unfinished(self, run: str) -> tuple[int, int, int] | None:
        """Return since, until and the reached time of an unfinished run of this name."""
        row: tuple[int, int, int] | None = self._db.execute(
            "SELECT since_ns, until_ns, reached_ns FROM run WHERE name = ? AND reached_ns < until_ns", (run,)
        ).fetchone()
        return row

    async def reached(self, run: str, time_ns: int) -> None:
        """Record that everything before this moment is done."""
        await self._write("UPDATE run SET reached_ns = ? WHERE name = ?", time_ns, run)

    def spent(self, run: str) -> Spend:
        """Return what a run has spent; pending requests count by their estimates."""
        row = self._db.execute("SELECT calls, tokens, usd_nano FROM spent WHERE run = ?", (run,)).fetchone()
        return Spend(calls=row[0], tokens=row[1], usd_nano=row[2]) if row else Spend()

    async def spend(self, run: str, amount: Spend) -> None:
        """Add to what a run has spent; a negative amount corrects an estimate."""
        await self._write(
            "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls,"
            " tokens = tokens + excluded.tokens, usd_nano = usd_nano + excluded.usd_nano",
            *(run, amount.calls, amount.tokens, amount.usd_nano),
        )

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._db.execute(query, values).fetchall()

    async def write(self, *statements: tuple[str, Sequence[object]]) -> None:
        """Execute statements as one transaction."""
        await asyncio.to_thread(self._write_now, statements)

    async def _write(self, statement: str, *values: object) -> None:
        await self.write((statement, values))

    def _write_now(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        with self._writing:
            if self._is_open:
                with transaction(self._db) if len(statements) > 1 else nullcontext():
                    for statement, values in statements:
                        self._db.execute(statement, values)
