"""Reports from a store, on connections of their own: they wait for no writer, and none for them."""

from __future__ import annotations

import asyncio

from ragtrace.sql import Db
from ragtrace_collector.ledger import Ledger
from ragtrace_collector.store._judged import size
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.ledger import read_answers, take_stock
from ragtrace_collector.store.records import IndexSize, StoredTrace, TraceReport
from ragtrace_collector.store.revisions import UNDECIDED
from ragtrace_collector.store.trace_key import BEHIND_ID, TRACE_ID_LENGTH


class Reports:
    """What happened to every answer that was seen, also of a store whose collector is stopped.

    Each method reads one moment and keeps no writer waiting. It raises ReadError if the store cannot be read.
    """

    def __init__(self, database: Database, cipher: PayloadCipher = NO_CIPHER) -> None:
        self._database = database
        self._cipher = cipher

    async def ledger(self, tenant: str | None = None, *, since_ns: int | None = None) -> Ledger:
        """Return the whole ledger, or that of one tenant's answers. It adds up at every moment.

        With ``since_ns``, it counts the answers that were seen since that time and are still stored, by
        service too.
        """
        return await asyncio.to_thread(take_stock, self._database, since_ns=since_ns, tenant=tenant)

    async def find_traces(self, begin: str, *, limit: int, tenant: str | None = None) -> tuple[str, ...]:
        """Return the keys of traces, stored or with answers, whose ids begin so, in order.

        ``begin`` is made of hex digits, as trace ids are; every id begins with the empty string. With
        ``tenant``, only that tenant's traces count.
        """
        return await asyncio.to_thread(self._find, begin, limit, tenant)

    async def trace_report(self, trace_id: str) -> TraceReport:
        """Return what is known about a trace, by its whole key."""
        return await asyncio.to_thread(self._report, trace_id)

    async def index_size(self) -> IndexSize:
        """Return how much the index of answers holds."""
        return await asyncio.to_thread(self._index_size)

    def _index_size(self) -> IndexSize:
        with self._database.reading() as db:
            return size(db)

    def _find(self, begin: str, limit: int, tenant: str | None) -> tuple[str, ...]:
        with self._database.reading() as db:
            values = [begin, f"{begin}g"]  # behind the prefix comes nothing, or a character less than g
            where = "WHERE trace_id >= ? AND trace_id < ?"
            if tenant is not None:
                values.append(f"{BEHIND_ID}{tenant}")
                where += f" AND substr(trace_id, {TRACE_ID_LENGTH + 1}) = ?"
            rows = db.execute(
                f"SELECT trace_id FROM trace {where} UNION SELECT trace_id FROM job {where}"
                " ORDER BY 1 LIMIT ?",
                (*values, *values, limit),
            )
            return tuple(row[0] for row in rows)

    def _report(self, trace_id: str) -> TraceReport:
        with self._database.reading() as db:
            return TraceReport(trace=_trace(db, trace_id, self._cipher), answers=read_answers(db, trace_id))


def _trace(db: Db, trace_id: str, cipher: PayloadCipher) -> StoredTrace | None:
    row = db.execute(
        f"SELECT last_arrival_ns, CASE WHEN {UNDECIDED} THEN 1 ELSE 0 END, settled_ns, is_cut,"
        " (SELECT since_ns FROM held WHERE held.trace_id = trace.trace_id),"
        " coalesce(suspect.poison, ''), coalesce(suspect.crashes, 0)"
        " FROM trace LEFT JOIN suspect ON suspect.trace_id = trace.trace_id WHERE trace.trace_id = ?",
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


def _payloads(db: Db, trace_id: str, cipher: PayloadCipher) -> tuple[bytes, ...] | None:
    rows = db.execute("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,)).fetchall()
    if any(cipher.missing_key(payload) for (payload,) in rows):
        return None
    return tuple(cipher.decrypt(payload, trace_id) for (payload,) in rows)
