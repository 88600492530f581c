"""SQLite's connection fails in ways that nobody foresaw: what was acknowledged is there, and nobody hangs."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragtrace_collector.store import sqlite
from tests.attack.attacked import idle_config, stored_traces
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.rag_spans import rag_trace, trace_id_of

ERRORS = {1: MemoryError(), 2: RuntimeError(), 4: asyncio.CancelledError()}
PLACES = (
    ("INSERT INTO slice",),
    ("INSERT INTO slice", "ROLLBACK TO one"),
    ("COMMIT",),
    ("COMMIT", "ROLLBACK", "PRAGMA wal_checkpoint"),
)


class Failing(sqlite.SqliteDb):
    """The writer of spans fails once before each statement that begins as one named."""

    trouble: dict[str, BaseException] = {}
    takes_spans = False

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        self._fail(sql)
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Any, /) -> sqlite3.Cursor:
        self._fail(sql)
        return super().executemany(sql, rows)

    def _fail(self, sql: str) -> None:
        if threading.current_thread().name == "ragtrace-store":
            self.takes_spans = sql.startswith("INSERT INTO slice") or (
                self.takes_spans and sql != "BEGIN IMMEDIATE"
            )
            for begin in self.trouble if self.takes_spans else ():
                if sql.startswith(begin) and (begin != "ROLLBACK" or sql == begin):
                    raise self.trouble.pop(begin)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, BaseException]]:
    monkeypatch.setattr(sqlite, "SqliteDb", Failing)
    yield Failing.trouble
    Failing.trouble.clear()


@pytest.mark.slow
@pytest.mark.parametrize("places", PLACES, ids=" and ".join)
async def test_what_was_acknowledged_is_there_whatever_a_commit_fails_with(
    tmp_path: Path, trouble: dict[str, BaseException], places: tuple[str, ...]
) -> None:
    acknowledged = set()
    async with running_collector(config_of(tmp_path, **idle_config(tmp_path))) as collector:
        for number in range(6):
            if number in ERRORS:
                trouble |= dict.fromkeys(places, ERRORS[number])
            answers = await asyncio.gather(
                *(post(collector, request_of(*rag_trace(3 * number + one))) for one in range(3))
            )
            for one, answer in enumerate(answers):
                if answer.status_code == 200:
                    acknowledged.add(trace_id_of(3 * number + one))
                else:
                    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "5")
            trouble.clear()
    assert {trace_id_of(number) for number in (0, 1, 2, 9, 10, 11, 15, 16, 17)} <= acknowledged
    assert len(acknowledged) < 18
    assert stored_traces(tmp_path / "store.db") >= acknowledged
