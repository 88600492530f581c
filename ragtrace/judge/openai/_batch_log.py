"""The file that maps requests to batches: a request that was paid for is found after a crash.

It holds digests and ids, no content: the provider keeps replies until they are downloaded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

from ragtrace.clock import SystemClock
from ragtrace.errors import ConfigError, JudgeRefused
from ragtrace.model import Usage
from ragtrace.ports import Clock
from ragtrace.sqlite_file import SqliteForm, is_busy, open_private

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS batch (
    key TEXT PRIMARY KEY, planned_at_s INTEGER NOT NULL, file_id TEXT, batch_id TEXT,
    has_ended INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS request (
    id TEXT PRIMARY KEY, batch TEXT NOT NULL REFERENCES batch ON DELETE CASCADE, taken_by TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS request_batch ON request (batch);
"""
_FORM: Final = SqliteForm(
    application_id=0x72616762,  # "ragb"
    steps=(_SCHEMA,),
    # two processes with the same requests would both pay
    pragmas=("locking_mode = EXCLUSIVE", "foreign_keys = ON"),
    busy_s=0,
    unmarked_tables=frozenset({"batch", "request"}),
)
_KEPT_S: Final = 30 * 86_400
"""Batch files expire after this time (https://platform.openai.com/docs/api-reference/files/create)."""
_TAKEN_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch, recorded before it is sent."""

    key: str
    """Our key, also in the batch's metadata."""
    planned_at_s: int
    file_id: str | None = None
    """The provider's id of the uploaded requests; ``None`` before."""
    batch_id: str | None = None
    """The provider's id of the batch; ``None`` until the creation is confirmed."""


class BatchLog:
    """The planned batches of one judge, and their requests. One process at a time uses it.

    Methods that write raise ``JudgeRefused`` if that fails: no request is paid for without a record.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        """Open the file (readable by its owner only).

        Raises:
            ConfigError: it cannot be used.
        """
        self._path = path
        self._clock = clock or SystemClock()
        self._me = uuid4().hex
        self._taken: list[str] = []
        try:
            self._db = open_private(path, _FORM, is_transactional=True)
        except OSError as exc:
            hint = "another back-fill is using it" if is_busy(exc) else exc
            raise ConfigError(f"the list of batches {str(path)!r} cannot be used: {hint}") from exc
        with self._writing():
            self._db.execute("DELETE FROM batch WHERE planned_at_s < ?", (self._now_s() - _KEPT_S,))

    def batch_of(self, request: str) -> PlannedBatch | None:
        """Return the batch that a request is in."""
        row = self._db.execute(
            "SELECT key, planned_at_s, file_id, batch_id FROM batch"
            " WHERE key = (SELECT batch FROM request WHERE id = ?)",
            (request,),
        ).fetchone()
        return row and PlannedBatch(key=row[0], planned_at_s=row[1], file_id=row[2], batch_id=row[3])

    def plan(self, requests: Sequence[str]) -> PlannedBatch:
        """Record that these requests are about to be sent."""
        planned = PlannedBatch(key=uuid4().hex, planned_at_s=self._now_s())
        with self._writing():
            self._db.execute(
                "INSERT INTO batch (key, planned_at_s) VALUES (?, ?)", (planned.key, planned.planned_at_s)
            )
            self._db.executemany(
                "INSERT INTO request (id, batch) VALUES (?, ?)",
                [(request, planned.key) for request in requests],
            )
        return planned

    def uploaded(self, planned: PlannedBatch, file_id: str) -> PlannedBatch:
        """Record the file that holds the requests."""
        self._update(planned, "file_id", file_id)
        return replace(planned, file_id=file_id)

    def created(self, planned: PlannedBatch, batch_id: str) -> PlannedBatch:
        """Record the provider's batch id."""
        self._update(planned, "batch_id", batch_id)
        return replace(planned, batch_id=batch_id)

    def ended(self, planned: PlannedBatch) -> None:
        """Record that the batch has ended."""
        self._update(planned, "has_ended", 1)

    def drop(self, planned: PlannedBatch) -> int:
        """Delete a batch that the provider rejected or no longer has. Return the number of its requests,
        which must be sent again."""
        with self._writing():
            dropped = self._db.execute("DELETE FROM request WHERE batch = ?", (planned.key,)).rowcount
            self._db.execute("DELETE FROM batch WHERE key = ?", (planned.key,))
        return dropped

    def take(self, request: str) -> None:
        """Record, with the next write, that the caller has the reply to a request."""
        self._taken.append(request)
        if len(self._taken) >= _TAKEN_AT_ONCE:
            self._write_taken()

    def forget_taken(self) -> None:
        """Delete requests whose replies this process delivered, then batches that are left empty."""
        self._write_taken()
        with self._writing():
            self._db.execute("DELETE FROM request WHERE taken_by = ?", (self._me,))
            self._db.execute("DELETE FROM batch WHERE key NOT IN (SELECT batch FROM request)")

    def unfinished(self) -> tuple[int, int]:
        """Count the batches that were sent and have not ended, and their requests."""
        row: tuple[int, int] = self._db.execute(
            "SELECT count(DISTINCT key), count(*) FROM batch JOIN request ON request.batch = key"
            " WHERE file_id IS NOT NULL AND NOT has_ended"
        ).fetchone()
        return row

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _update(self, planned: PlannedBatch, column: str, value: str | int) -> None:
        with self._writing():
            self._db.execute(f"UPDATE batch SET {column} = ? WHERE key = ?", (value, planned.key))

    def _write_taken(self) -> None:
        with self._writing():
            self._db.executemany(
                "UPDATE request SET taken_by = ? WHERE id = ?",
                [(self._me, request_id) for request_id in self._taken],
            )
        self._taken.clear()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._db:
                yield
        except sqlite3.Error as exc:
            what = f"the list of batches {str(self._path)!r} cannot be written: {exc}"
            raise JudgeRefused(what, usage=Usage()) from exc

    def _now_s(self) -> int:
        return self._clock.now_ns() // 1_000_000_000
