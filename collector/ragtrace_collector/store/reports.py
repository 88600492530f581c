"""Reports from a SQLite store, on connections of their own: they wait for no writer, and none for them."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Final

from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.store._judged import size
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher
from ragtrace_collector.store.ledger import read_answers, take_stock
from ragtrace_collector.store.port import IndexSize, StoredTrace, TraceReport
from ragtrace_collector.store.reader import reading
from ragtrace_collector.store.revisions import UNDECIDED
from ragtrace_collector.store.trace_key import BEHIND_ID


class SqliteReports:
    """The [`LedgerStore`][ragtrace_collector.store.port.LedgerStore] of a SQLite file, also a stopped one.

    Its methods raise ReadError if the file cannot be read.
    """

    def __init__(self, path: Path, cipher: PayloadCipher = NO_CIPHER) -> None:
        self._path = path
        self._cipher = cipher

    async def ledger(self, tenant: str | None = None, *, since_ns: int | None = None) -> Ledger:
        return await asyncio.to_thread(take_stock, self._path, since_ns=since_ns, tenant=tenant)

    async def find_traces(self, begin: str, *, limit: int, tenant: str | None = None) -> tuple[str, ...]:
        return await asyncio.to_thread(self._find, begin, limit, tenant)

    async def trace_report(self, trace_id: str) -> TraceReport:
        return await asyncio.to_thread(self._report, trace_id)

    async def index_size(self) -> IndexSize:
        """Return how much the index of answers holds."""
        return await asyncio.to_thread(self._index_size)

    def _index_size(self) -> IndexSize:
        with reading(self._path) as db:
            return size(db)

    def _find(self, begin: str, limit: int, tenant: str | None) -> tuple[str, ...]:
        with reading(self._path) as db:
            rows = db.execute(
                f"SELECT trace_id FROM trace WHERE {_BEGINS_SO}"
                f" UNION SELECT trace_id FROM job WHERE {_BEGINS_SO} ORDER BY 1 LIMIT ?2",
                (begin, limit, None if tenant is None else f"{BEHIND_ID}{tenant}"),
            )
            return tuple(row[0] for row in rows)

    def _report(self, trace_id: str) -> TraceReport:
        with reading(self._path) as db:
            return TraceReport(trace=_trace(db, trace_id, self._cipher), answers=read_answers(db, trace_id))


_BEGINS_SO: Final = (
    "trace_id >= ?1 AND trace_id < ?1 || 'g'"
    " AND (?3 IS NULL OR substr(trace_id, max(1, instr(trace_id, '@'))) = ?3)"
)
"""After the prefix comes nothing, or a character less than ``g``."""


def _trace(db: sqlite3.Connection, trace_id: str, cipher: PayloadCipher) -> StoredTrace | None:
    row = db.execute(
        f"SELECT last_arrival_ns, {UNDECIDED}, settled_ns, is_cut,"
        " (SELECT since_ns FROM held WHERE held.trace_id = trace.trace_id),"
        " coalesce(suspect.poison, ''), coalesce(suspect.crashes, 0)"
        " FROM trace LEFT JOIN suspect USING (trace_id) WHERE trace_id = ?",
        (trace_id,),
    ).fetchone()
    if row is None:
        return None
    return StoredTrace(
        last_arrival_ns=row[0],
        is_open=bool(row[1]),
        decided_ns=row[2],
        is_cut=bool(row[3]),
        held_since_ns=row[4],
        poison=row[5],
        crashes=row[6],
        payloads=_payloads(db, trace_id, cipher) if row[1] else (),
    )


def _payloads(db: sqlite3.Connection, trace_id: str, cipher: PayloadCipher) -> tuple[bytes, ...] | None:
    rows = db.execute("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,)).fetchall()
    if any(cipher.missing_key(payload) for (payload,) in rows):
        return None
    return tuple(cipher.decrypt(payload, trace_id) for (payload,) in rows)
