"""Read the ledger of a store, while the collector runs or is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ragtrace.answers.summary import AnswerKey, ScreenedAnswer
from ragtrace.sql import Db
from ragtrace_collector.ledger import Account, AnswerStatus, Delivery, Ledger, State
from ragtrace_collector.store import _dead_letters, _unread
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.revisions import UNDECIDED
from ragtrace_collector.store.trace_key import BEHIND_ID, TRACE_ID_LENGTH, tenant_of, trace_id_of


def take_stock(database: Database, *, since_ns: int | None = None, tenant: str | None = None) -> Ledger:
    """Read the whole ledger, or that of the answers seen since a time; of all tenants, or of one.

    Raises:
        ReadError: the store cannot be read.
    """
    with database.reading() as db:
        found = read_ledger(db) if since_ns is None else read_rows(db, since_ns=since_ns)
        found = replace(found, store_bytes=database.used_bytes(db))
        return of_tenant(found, db, tenant, since_ns=since_ns) if tenant else found


def count_due(database: Database, *, now_ns: int) -> int:
    """Count the answers that wait for the judge now, and those being judged.

    Raises:
        ReadError: the store cannot be read.
    """
    with database.reading() as db:
        return (_one(db, "SELECT count(*) FROM job WHERE state = 'leased'") or 0) + (
            _one(db, "SELECT count(*) FROM job WHERE state = 'queued' AND due_ns <= ?", now_ns) or 0
        )


def read_ledger(db: Db) -> Ledger:
    """Read the whole ledger inside the open transaction."""
    accounts = db.execute(
        "SELECT state, reason, rule, tenant, sum(number) FROM ledger GROUP BY state, reason, rule, tenant"
        " ORDER BY 5 DESC, 1, 2, 3, 4"
    ).fetchall()
    return Ledger(
        seen=sum(row[4] for row in accounts if row[0] == "seen"),
        superseded=sum(row[4] for row in accounts if row[0] == State.SUPERSEDED),
        accounts=tuple(
            Account(state=State(state), reason=reason, rule=rule, tenant=tenant, number=number)
            for state, reason, rule, tenant, number in accounts
            if state not in ("seen", State.SUPERSEDED)
        ),
        oldest_pending_ns=_one(db, "SELECT min(seen_ns) FROM job WHERE state != 'ended'"),
        open_traces=_one(db, f"SELECT count(*) FROM trace WHERE {UNDECIDED}") or 0,
        held_traces=_one(db, "SELECT count(*) FROM held") or 0,
        poison_traces=_one(db, "SELECT count(*) FROM suspect WHERE poison != ''") or 0,
        unread=_unread.accounts(db),
        outbox_items=_outbox_items(db),
        dead_letters=_dead_letters.sums(db),
    )


def of_tenant(ledger: Ledger, db: Db, tenant: str, *, since_ns: int | None = None) -> Ledger:
    """Return one tenant's answers and traces. Outbox items and the file's size are shared by all tenants.

    It runs inside the transaction that read the ledger.
    """
    accounts = tuple(each for each in ledger.accounts if each.tenant == tenant)
    superseded = _one(
        db,
        "SELECT sum(number) FROM ledger WHERE state = 'superseded' AND tenant = ?"
        if since_ns is None
        else "SELECT count(*) FROM job WHERE stands = 'superseded' AND tenant = ?"
        f" AND seen_ns >= {since_ns:d}",
        tenant,
    )
    suffix = f"{BEHIND_ID}{tenant}"
    is_own = f"substr(trace_id, {TRACE_ID_LENGTH + 1}) = ?"
    return Ledger(
        seen=sum(each.number for each in accounts),
        superseded=superseded or 0,
        accounts=accounts,
        oldest_pending_ns=_one(
            db,
            "SELECT min(seen_ns) FROM job WHERE state != 'ended' AND tenant = ?"
            f" AND seen_ns >= {since_ns or 0:d}",
            tenant,
        ),
        open_traces=_one(db, f"SELECT count(*) FROM trace WHERE {UNDECIDED} AND {is_own}", suffix) or 0,
        held_traces=_one(db, f"SELECT count(*) FROM held WHERE {is_own}", suffix) or 0,
        unread=tuple(each for each in ledger.unread if each.tenant == tenant),
        outbox_items={},
    )


def read_rows(db: Db, *, since_ns: int) -> Ledger:
    """Read the states of the answers seen since a time, inside the open transaction.

    They come from the rows, so answers deleted by ``store.retention`` are missing.
    """
    rows = db.execute(
        "SELECT stands, why, rule, tenant, service, count(*) FROM job WHERE seen_ns >= ?"
        " GROUP BY 1, 2, 3, 4, 5 ORDER BY 6 DESC, 1, 2, 3, 4, 5",
        (since_ns,),
    ).fetchall()
    return replace(
        read_ledger(db),
        seen=sum(row[5] for row in rows if row[0] != State.SUPERSEDED),
        superseded=sum(row[5] for row in rows if row[0] == State.SUPERSEDED),
        accounts=tuple(
            Account(
                state=State(state), reason=reason, rule=rule, tenant=tenant, service=service, number=number
            )
            for state, reason, rule, tenant, service, number in rows
            if state != State.SUPERSEDED
        ),
        oldest_pending_ns=_one(
            db, f"SELECT min(seen_ns) FROM job WHERE state != 'ended' AND seen_ns >= {since_ns:d}"
        ),
    )


def read_screened(database: Database, since_ns: int, until_ns: int) -> Sequence[ScreenedAnswer]:
    """Read the answers that a screen looked at, judged or not, without those that rules drop.

    The time is when the collector saw them. They are kept for `store.retention`.

    Raises:
        ReadError: the file cannot be read.
    """
    with database.reading() as db:
        rows = db.execute(
            "SELECT trace_id, span_id, tenant, service, seen_ns, suspicion, screened FROM job"
            " WHERE suspicion IS NOT NULL AND screened > 0 AND seen_ns >= ? AND seen_ns < ?"
            " AND stands NOT IN ('filtered', 'ineligible', 'superseded')",
            (since_ns, until_ns),
        ).fetchall()
    return [
        ScreenedAnswer(
            key=AnswerKey(trace_id_of(trace_id), span_id, tenant_of(trace_id) or tenant),
            service=service,
            time_ns=seen_ns,
            suspicion=suspicion,
            probability=screened,
        )
        for trace_id, span_id, tenant, service, seen_ns, suspicion, screened in rows
    ]


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
