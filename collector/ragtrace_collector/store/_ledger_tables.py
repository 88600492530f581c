"""The tables of the ledger, and the triggers that update it with every change of a job.

It is double entry: an answer is counted as ``seen`` when its row is added, and under its state; a change
moves it between states. The statement that changes the row makes both entries, so that no code path, crash or
expiry of rows can separate them.
"""

from __future__ import annotations

from typing import Final

OTHERS: Final = "(others)"
"""Tenants beyond the first thousand: senders name them, and the ledger must not grow without limit."""

_MOST_TENANTS: Final = 1_000

_STANDS: Final = """CASE
    WHEN state = 'ended' THEN substr(outcome, 1, instr(outcome || ':', ':') - 1)
    WHEN state = 'queued' AND reason != '' THEN 'postponed'
    ELSE state END"""
_WHY: Final = """CASE
    WHEN state = 'ended' THEN substr(outcome, instr(outcome || ':', ':') + 1)
    WHEN state = 'queued' THEN reason
    ELSE '' END"""


def _count(table: str, *key: str, number: str = "1") -> str:
    return (
        f"INSERT INTO {table} VALUES ({', '.join(key)}, {number})"
        " ON CONFLICT DO UPDATE SET number = number + excluded.number;"
    )


def _leave(table: str, **key: str) -> str:
    where = " AND ".join(f"{column} = {value}" for column, value in key.items())
    return f"UPDATE {table} SET number = number - 1 WHERE {where};"


def _account(tenant: str) -> str:
    """Return the tenant that an answer is counted under: its own, if that has an account."""
    return f"iif({_known(tenant)}, {tenant}, '{OTHERS}')"


def _known(tenant: str) -> str:
    account = f"state = 'seen' AND reason = '' AND rule = '' AND tenant = {tenant}"
    return f"EXISTS (SELECT 1 FROM ledger WHERE {account})"


_OLD: Final = _account("OLD.tenant")
_NEW: Final = _account("NEW.tenant")
_NEWLY_SEEN: Final = (
    f"iif({_known('NEW.tenant')} OR (SELECT count(*) FROM ledger WHERE state = 'seen') < {_MOST_TENANTS},"
    f" NEW.tenant, '{OTHERS}')"
)
_LEAVE_STATE: Final = _leave("ledger", state="OLD.stands", reason="OLD.why", rule="OLD.rule", tenant=_OLD)
_LEAVE_WAITING: Final = _leave("outbox", sink="OLD.sink", state="'waiting'")

LEDGER: Final = f"""
ALTER TABLE job ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN seen_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN carrier TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN evaluator TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN is_on_span INTEGER NOT NULL DEFAULT 0;   -- scores stand on the answer span itself
ALTER TABLE job ADD COLUMN stands TEXT AS ({_STANDS});
ALTER TABLE job ADD COLUMN why TEXT AS ({_WHY});
UPDATE job SET seen_ns = coalesce(ended_ns, due_ns);
CREATE INDEX job_pending ON job (seen_ns) WHERE state != 'ended';

CREATE TABLE ledger (   -- 'seen', or where answers stand; survives their rows
    state TEXT NOT NULL, reason TEXT NOT NULL, rule TEXT NOT NULL, tenant TEXT NOT NULL,
    number INTEGER NOT NULL, PRIMARY KEY (state, reason, rule, tenant)) WITHOUT ROWID;
INSERT INTO ledger SELECT stands, why, rule, tenant, count(*) FROM job GROUP BY 1, 2, 3, 4;
INSERT INTO ledger SELECT 'seen', '', '', tenant, count(*) FROM job WHERE stands != 'superseded' GROUP BY 4;

CREATE TRIGGER answer_seen AFTER INSERT ON job BEGIN
    {_count("ledger", "'seen'", "''", "''", _NEWLY_SEEN, number="NEW.stands != 'superseded'")}
    {_count("ledger", "NEW.stands", "NEW.why", "NEW.rule", _NEW)}
END;
CREATE TRIGGER answer_moved AFTER UPDATE ON job
WHEN (OLD.stands, OLD.why, OLD.rule) IS NOT (NEW.stands, NEW.why, NEW.rule) BEGIN
    {_LEAVE_STATE}
    {_count("ledger", "NEW.stands", "NEW.why", "NEW.rule", _NEW)}
    UPDATE ledger SET number = number + (NEW.stands != 'superseded') - (OLD.stands != 'superseded')
        WHERE state = 'seen' AND reason = '' AND rule = '' AND tenant = {_NEW};
END;
CREATE TRIGGER answer_expired AFTER DELETE ON job WHEN OLD.state != 'ended' BEGIN
    {_LEAVE_STATE}
    {_count("ledger", "'expired'", "'retention'", "OLD.rule", _OLD)}
END;

CREATE TABLE outbox (   -- parcels 'put', 'waiting', 'delivered' and 'rejected'; survives their rows
    sink TEXT NOT NULL, state TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (sink, state)) WITHOUT ROWID;
INSERT INTO outbox SELECT sink, 'put', count(*) FROM parcel GROUP BY 1;
INSERT INTO outbox
    SELECT sink, iif(rejected_ns IS NULL, 'waiting', 'rejected'), count(*) FROM parcel GROUP BY 1, 2;
ALTER TABLE parcel ADD COLUMN trace_id TEXT NOT NULL DEFAULT '';
ALTER TABLE parcel ADD COLUMN span_id TEXT NOT NULL DEFAULT '';
CREATE TABLE carrier (  -- where the newest carrier of an answer is
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, sink TEXT NOT NULL,
    parcel INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trace_id, span_id, sink)) WITHOUT ROWID;

CREATE TRIGGER parcel_put AFTER INSERT ON parcel BEGIN
    {_count("outbox", "NEW.sink", "'put'")}
    {_count("outbox", "NEW.sink", "'waiting'")}
END;
CREATE TRIGGER carrier_put AFTER INSERT ON parcel WHEN NEW.trace_id != '' BEGIN
    INSERT INTO carrier (trace_id, span_id, sink, parcel, state)
        VALUES (NEW.trace_id, NEW.span_id, NEW.sink, NEW.id, 'waiting')
        ON CONFLICT DO UPDATE SET parcel = NEW.id, state = 'waiting', reason = '';
END;
CREATE TRIGGER parcel_rejected AFTER UPDATE OF rejected_ns ON parcel
WHEN OLD.rejected_ns IS NULL AND NEW.rejected_ns IS NOT NULL BEGIN
    {_LEAVE_WAITING}
    {_count("outbox", "OLD.sink", "'rejected'")}
    UPDATE carrier SET state = 'rejected', reason = NEW.reason
        WHERE trace_id = NEW.trace_id AND span_id = NEW.span_id AND sink = NEW.sink AND parcel = NEW.id;
END;
CREATE TRIGGER parcel_sent_again AFTER UPDATE OF rejected_ns ON parcel
WHEN OLD.rejected_ns IS NOT NULL AND NEW.rejected_ns IS NULL BEGIN
    {_leave("outbox", sink="OLD.sink", state="'rejected'")}
    {_count("outbox", "OLD.sink", "'waiting'")}
    UPDATE carrier SET state = 'waiting', reason = ''
        WHERE trace_id = NEW.trace_id AND span_id = NEW.span_id AND sink = NEW.sink AND parcel = NEW.id;
END;
CREATE TRIGGER parcel_delivered AFTER DELETE ON parcel WHEN OLD.rejected_ns IS NULL BEGIN
    {_LEAVE_WAITING}
    {_count("outbox", "OLD.sink", "'delivered'")}
    UPDATE carrier SET state = 'delivered'
        WHERE trace_id = OLD.trace_id AND span_id = OLD.span_id AND sink = OLD.sink AND parcel = OLD.id;
END;
CREATE TRIGGER carrier_forgotten AFTER DELETE ON job BEGIN
    DELETE FROM carrier WHERE trace_id = OLD.trace_id AND span_id = OLD.span_id;
END;
"""

UNCONFIRMED: Final = f"""
ALTER TABLE parcel ADD COLUMN unconfirmed TEXT NOT NULL DEFAULT '';     -- why nobody knows
DROP TRIGGER parcel_delivered;
CREATE TRIGGER parcel_delivered AFTER DELETE ON parcel
WHEN OLD.rejected_ns IS NULL AND OLD.unconfirmed = '' BEGIN
    {_LEAVE_WAITING}
    {_count("outbox", "OLD.sink", "'delivered'")}
    UPDATE carrier SET state = 'delivered'
        WHERE trace_id = OLD.trace_id AND span_id = OLD.span_id AND sink = OLD.sink AND parcel = OLD.id;
END;
CREATE TRIGGER parcel_unconfirmed AFTER DELETE ON parcel
WHEN OLD.rejected_ns IS NULL AND OLD.unconfirmed != '' BEGIN
    {_LEAVE_WAITING}
    {_count("outbox", "OLD.sink", "'unconfirmed'")}
    UPDATE carrier SET state = 'unconfirmed', reason = OLD.unconfirmed
        WHERE trace_id = OLD.trace_id AND span_id = OLD.span_id AND sink = OLD.sink AND parcel = OLD.id;
END;
"""
"""The step to version 3: a sink may report success in an unreadable response."""
