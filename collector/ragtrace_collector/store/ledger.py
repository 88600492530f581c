"""The ledger of a store: read while the collector runs or is stopped, on connections of its own.

Triggers count unread traces, so that the sums outlive the rows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ragtrace.sql import Db
from ragtrace.traces.extract import Unread
from ragtrace_collector.ledger import Account, AnswerStatus, Delivery, Ledger, State, UnreadTraces
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher, Undecipherable
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.jobs import UNDECIDED
from ragtrace_collector.store.records import (
    BEHIND_ID,
    TRACE_ID_LENGTH,
    IndexSize,
    StoredTrace,
    TraceReport,
    tenant_of,
    trace_id_of,
)


def take_stock(database: Database, *, since_ns: int | None = None, tenant: str | None = None) -> Ledger:
    """Read the whole ledger, or that of the answers seen since a time; of all tenants, or of one.

    Raises:
        ReadError: the store cannot be read.
    """
    with database.reading() as db:
        found = read_ledger(db, since_ns=since_ns, tenant=tenant)
        # outbox items, dead letters and the file's size are shared by all tenants
        return found if tenant else replace(found, store_bytes=database.used_bytes(db))


def count_due(database: Database, *, now_ns: int) -> int:
    """Count the answers that wait for the judge now, and those being judged.

    Raises:
        ReadError: the store cannot be read.
    """
    query = "SELECT count(*) FROM job WHERE state = 'leased' OR (state = 'queued' AND due_ns <= ?)"
    with database.reading() as db:
        return _one(db, query, now_ns) or 0


def read_ledger(db: Db, *, since_ns: int | None = None, tenant: str | None = None) -> Ledger:
    """Read the ledger inside the open transaction: the sums, or the rows of answers seen since a time.

    Of the latter, answers deleted by ``store.retention`` are missing.
    """
    accounts, seen, superseded = [], 0, 0
    query = _SUMS if since_ns is None else _ROWS
    for state, reason, rule, of_tenant, service, number in db.execute(query, (since_ns,) * query.count("?")):
        if tenant and of_tenant != tenant:
            continue
        if state == "seen":
            seen += number
        elif state == State.SUPERSEDED:
            superseded += number
        else:
            names = {"reason": reason, "rule": rule, "tenant": of_tenant, "service": service}
            accounts.append(Account(state=State(state), number=number, **names))
    traces = f" AND substr(trace_id, {TRACE_ID_LENGTH + 1}) = ?" if tenant else ""
    of_trace = (f"{BEHIND_ID}{tenant}",) if tenant else ()
    pending, of_pending = (" AND tenant = ?", (tenant,)) if tenant else ("", ())
    return Ledger(
        seen=seen if since_ns is None else sum(each.number for each in accounts),
        superseded=superseded,
        accounts=tuple(accounts),
        oldest_pending_ns=_one(
            db,
            f"SELECT min(seen_ns) FROM job WHERE state != 'ended' AND seen_ns >= ?{pending}",
            *(since_ns or 0, *of_pending),
        ),
        open_traces=_one(db, f"SELECT count(*) FROM trace WHERE {UNDECIDED}{traces}", *of_trace) or 0,
        held_traces=_one(db, f"SELECT count(*) FROM held WHERE bytes >= 0{traces}", *of_trace) or 0,
        poison_traces=_one(db, f"SELECT count(*) FROM suspect WHERE poison != ''{traces}", *of_trace) or 0,
        unread=tuple(each for each in unread_accounts(db) if not tenant or each.tenant == tenant),
        outbox_items={} if tenant else _outbox_items(db),
        dead_letters={} if tenant else dead_letter_sums(db),
    )


_SUMS: Final = (
    "SELECT state, reason, rule, tenant, '', sum(number) FROM ledger GROUP BY state, reason, rule, tenant"
    " ORDER BY 6 DESC, 1, 2, 3, 4"
)
_ROWS: Final = (
    "SELECT stands, why, rule, tenant, service, count(*) FROM job WHERE seen_ns >= ?"
    " GROUP BY 1, 2, 3, 4, 5 ORDER BY 6 DESC, 1, 2, 3, 4, 5"
)


def read_answers(db: Db, trace_id: str) -> tuple[AnswerStatus, ...]:
    """Read the answers of one trace, inside the open transaction."""
    rows = db.execute(
        "SELECT span_id, stands, why, rule, rate, probability, tenant, service, attempts, reason, seen_ns,"
        " due_ns, ended_ns, carrier, evaluator, is_on_span, suspicion FROM job WHERE trace_id = ?"
        " ORDER BY seen_ns, span_id",
        (trace_id,),
    ).fetchall()
    return tuple(
        AnswerStatus(
            trace_id=trace_id_of(trace_id),
            span_id=row[0],
            state=State(row[1]),
            reason=row[2],
            rule=row[3],
            rate=row[4],
            probability=row[5] or None,  # zero means that it has none
            tenant=row[6],
            service=row[7],
            attempts=row[8],
            last_error=row[9],
            seen_ns=row[10],
            due_ns=row[11],
            ended_ns=row[12],
            carrier=row[13],
            evaluator=row[14],
            is_on_span=bool(row[15]),
            suspicion=row[16],
            deliveries=_deliveries(db, trace_id, row[0]),
        )
        for row in rows
    )


def _deliveries(db: Db, trace_id: str, span_id: str) -> tuple[Delivery, ...]:
    rows = db.execute(
        "SELECT sink, state, reason FROM carrier WHERE trace_id = ? AND span_id = ? ORDER BY sink",
        (trace_id, span_id),
    )
    return tuple(Delivery(sink=sink, state=state, reason=reason) for sink, state, reason in rows)


def _outbox_items(db: Db) -> Mapping[str, Mapping[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for sink, state, number in db.execute(
        "SELECT sink, state, sum(number) FROM outbox GROUP BY sink, state ORDER BY sink, state"
    ):
        sums.setdefault(sink, {})[state] = number
    return sums


def _one(db: Db, query: str, *values: str | int) -> int | None:
    value: int | None = db.execute(query, values).fetchone()[0]
    return value


OTHERS: Final = "(others)"
"""Tenants beyond the first thousand: senders name them, and the ledger must not grow without limit."""
_MOST_TENANTS: Final = 1_000


class Accounts:
    """The tenants that have accounts, as this process knows them; once one has, it always will."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, db: Db, tenant: str) -> str:
        """Return the account of a tenant that an answer was seen of."""
        if tenant not in self._known:
            self._known.update(row[0] for row in db.execute("SELECT DISTINCT tenant FROM ledger"))
            if len(self._known - {OTHERS}) >= _MOST_TENANTS and tenant not in self._known:
                return OTHERS
        return tenant


_MOST_ACCOUNTS: Final = 100
"""Senders name producers; one more account of each tenant counts the others."""
_LONGEST: Final = 200


def note_unread(db: Db, trace_id: str, unread: Unread | None) -> None:
    """Count a decided trace once, under its producer; no longer, if late spans were read."""
    account = None if unread is None else _account(db, tenant_of(trace_id) or "", unread)
    db.execute("UPDATE trace SET unread = ? WHERE trace_id = ?", (account, trace_id))


def unread_accounts(db: Db) -> Sequence[UnreadTraces]:
    """Return all accounts, the largest first."""
    rows = db.execute(
        "SELECT tenant, producer, coalesce(counted.number, 0), attributes, mapping FROM unread LEFT JOIN"
        " (SELECT account, sum(number) AS number FROM unread_sum GROUP BY account) AS counted"
        " ON account = id ORDER BY 3 DESC, id"
    )
    return tuple(
        UnreadTraces(
            tenant=tenant,
            producer=producer,
            number=number,
            attributes=tuple(json.loads(attributes)),
            mapping=json.loads(mapping),
        )
        for tenant, producer, number, attributes, mapping in rows
    )


def _account(db: Db, tenant: str, unread: Unread) -> int:
    """Return the account of a producer. It tells of the newest trace of those with the most parts."""
    producer = unread.producer[:_LONGEST]
    known = _known(db, tenant, producer)
    if known is None and db.execute("SELECT count(*) FROM unread").fetchone()[0] >= _MOST_ACCOUNTS:
        producer = OTHERS
        known = _known(db, tenant, producer)
    if known is not None and len(json.loads(known[1])) > len(unread.mapping):
        return int(known[0])
    told = json.dumps(unread.attributes), json.dumps(dict(unread.mapping))
    (account,) = db.execute(
        "INSERT INTO unread (tenant, producer, attributes, mapping) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (tenant, producer) DO UPDATE SET"
        " attributes = excluded.attributes, mapping = excluded.mapping RETURNING id",
        (tenant, producer, *told),
    ).fetchone()
    return int(account)


def _known(db: Db, tenant: str, producer: str) -> tuple[int, str] | None:
    found: tuple[int, str] | None = db.execute(
        "SELECT id, mapping FROM unread WHERE tenant = ? AND producer = ?", (tenant, producer)
    ).fetchone()
    return found


def dead_letter_sums(db: Db) -> Mapping[str, int]:
    """Return how many were ever noted, by reason."""
    return dict(
        db.execute(
            "SELECT reason, sum(number) FROM dead_letter_sum GROUP BY reason ORDER BY reason"
        ).fetchall()
    )


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
        values = [begin, f"{begin}g"]  # behind the prefix comes nothing, or a character less than g
        where = "WHERE trace_id >= ? AND trace_id < ?"
        if tenant is not None:
            values.append(f"{BEHIND_ID}{tenant}")
            where += f" AND substr(trace_id, {TRACE_ID_LENGTH + 1}) = ?"
        query = (
            f"SELECT trace_id FROM trace {where} UNION SELECT trace_id FROM job {where} ORDER BY 1 LIMIT ?"
        )

        def work() -> tuple[str, ...]:
            with self._database.reading() as db:
                return tuple(row[0] for row in db.execute(query, (*values, *values, limit)))

        return await asyncio.to_thread(work)

    async def trace_report(self, trace_id: str) -> TraceReport:
        """Return what is known about a trace, by its whole key."""
        return await asyncio.to_thread(self._report, trace_id)

    async def index_size(self) -> IndexSize:
        """Return how much the index of answers holds."""

        def work() -> IndexSize:
            with self._database.reading() as db:
                return IndexSize(rows=rows_in(db), oldest_ns=_one(db, "SELECT min(time_ns) FROM answer_row"))

        return await asyncio.to_thread(work)

    def _report(self, trace_id: str) -> TraceReport:
        with self._database.reading() as db:
            row = db.execute(
                f"SELECT last_arrival_ns, CASE WHEN {UNDECIDED} THEN 1 ELSE 0 END, settled_ns, is_cut,"
                " coalesce(suspect.poison, ''), coalesce(suspect.crashes, 0),"
                " (SELECT since_ns FROM held WHERE held.trace_id = trace.trace_id)"
                " FROM trace LEFT JOIN suspect ON suspect.trace_id = trace.trace_id WHERE trace.trace_id = ?",
                (trace_id,),
            ).fetchone()
            answers = read_answers(db, trace_id)
            if row is None:
                return TraceReport(trace=None, answers=answers)
            last_arrival_ns, is_open, decided_ns, is_cut, poison, crashes, held_since_ns = row
            trace = StoredTrace(
                last_arrival_ns=last_arrival_ns,
                is_open=bool(is_open),
                decided_ns=decided_ns,
                is_cut=bool(is_cut),
                poison=poison,
                crashes=crashes,
                held_since_ns=held_since_ns,
            )
            payloads = _payloads(db, trace_id, self._cipher) if is_open else ()
            return TraceReport(trace=trace, payloads=payloads, answers=answers)


def _payloads(db: Db, trace_id: str, cipher: PayloadCipher) -> tuple[bytes, ...] | None:
    rows = db.execute("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,)).fetchall()
    try:
        return tuple(cipher.decrypt(payload, trace_id) for (payload,) in rows)
    except Undecipherable:
        return None
