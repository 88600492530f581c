"""The tables of the store, and the triggers that count with every change.

The ledger is double entry: an answer is counted as ``seen`` when its row is added, and under its state; a
change moves it between states. The statement that changes the row makes both entries, so that no code path,
crash or expiry of rows can separate them. Sums are rows of a writer, so that writers do not wait for one
another; readers add them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ragtrace.answers.index_rows import INDEX_TABLES

VERSION: Final = 19
"""Of the tables. A store of another version is refused."""

_STANDS: Final = """CASE
        WHEN state = 'ended' THEN before_colon(outcome)
        WHEN state = 'queued' AND reason != '' THEN 'postponed'
        ELSE state END"""
_WHY: Final = """CASE
        WHEN state = 'ended' THEN behind_colon(outcome)
        WHEN state = 'queued' THEN reason
        ELSE '' END"""

TABLES: Final = f"""
CREATE TABLE slice (
    seq INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, payload BLOB NOT NULL);
CREATE INDEX slice_trace ON slice (trace_id);
CREATE TABLE trace (
    trace_id TEXT PRIMARY KEY, last_arrival_ns INTEGER NOT NULL, settled_ns INTEGER,
    slices INTEGER NOT NULL DEFAULT 0,              -- that ever came
    settled_slices INTEGER NOT NULL DEFAULT 0,      -- that it was settled with
    is_cut INTEGER NOT NULL DEFAULT 0,              -- not all its spans were kept
    owner INTEGER NOT NULL DEFAULT 0,               -- the writer that its last spans came to
    unread INTEGER) WITHOUT ROWID;                  -- the account that counts it; NULL if something was read
CREATE INDEX trace_settled ON trace (settled_ns);
CREATE INDEX trace_unsettled ON trace (trace_id) WHERE slices > settled_slices;
CREATE TABLE suspect (
    trace_id TEXT PRIMARY KEY, is_looked_at INTEGER NOT NULL DEFAULT 0, crashes INTEGER NOT NULL DEFAULT 0,
    owner INTEGER NOT NULL DEFAULT 0,               -- the writer that reads it
    poison TEXT NOT NULL DEFAULT '') WITHOUT ROWID; -- why it was set aside
CREATE TABLE job (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL,
    account TEXT NOT NULL,                          -- the tenant that the ledger counts it under
    tenant TEXT NOT NULL DEFAULT '', service TEXT NOT NULL DEFAULT '',
    rule TEXT NOT NULL DEFAULT '', rate REAL NOT NULL DEFAULT 0, probability REAL NOT NULL DEFAULT 0,
    suspicion REAL,                                 -- by the screen, before the judge; or NULL
    screened REAL NOT NULL DEFAULT 0,               -- with which probability it was screened
    state TEXT NOT NULL,                            -- queued | leased | ended
    owner INTEGER NOT NULL DEFAULT 0,               -- the writer that leased it last
    attempts INTEGER NOT NULL DEFAULT 0, crashes INTEGER NOT NULL DEFAULT 0,
    seen_ns INTEGER NOT NULL, due_ns INTEGER NOT NULL, ended_ns INTEGER,
    outcome TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
    carrier TEXT NOT NULL DEFAULT '', evaluator TEXT NOT NULL DEFAULT '',
    is_on_span INTEGER NOT NULL DEFAULT 0,          -- scores stand on the answer span itself
    wanted TEXT NOT NULL DEFAULT '',                -- digest of the record as it was settled last
    wanted_slices INTEGER NOT NULL DEFAULT 0,
    judged TEXT NOT NULL DEFAULT '',                -- digest of the record as it was judged last
    revisions_left INTEGER NOT NULL DEFAULT 0, carriers INTEGER NOT NULL DEFAULT 0,
    replaces TEXT NOT NULL DEFAULT '',              -- the carrier that the next one supersedes
    is_moved INTEGER NOT NULL DEFAULT 0,
    is_past INTEGER NOT NULL DEFAULT 0,             -- its spans were forgotten
    stands TEXT GENERATED ALWAYS AS ({_STANDS}) STORED,
    why TEXT GENERATED ALWAYS AS ({_WHY}) STORED,
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
CREATE INDEX job_due ON job (due_ns) WHERE state = 'queued';
CREATE INDEX job_crashed ON job (crashes, due_ns) WHERE state != 'ended' AND crashes > 0;
CREATE INDEX job_leased ON job (trace_id) WHERE state = 'leased';
CREATE INDEX job_pending ON job (seen_ns) WHERE state != 'ended';
CREATE INDEX job_ended ON job (ended_ns) WHERE state = 'ended';
CREATE TABLE parcel (
    id INTEGER PRIMARY KEY, sink TEXT NOT NULL, payload BLOB NOT NULL,
    trace_id TEXT NOT NULL DEFAULT '', span_id TEXT NOT NULL DEFAULT '',
    owner INTEGER NOT NULL DEFAULT 0,               -- the writer that sends it
    rejected_ns INTEGER, reason TEXT NOT NULL DEFAULT '',
    unconfirmed TEXT NOT NULL DEFAULT '');          -- why nobody knows whether the sink has it
CREATE INDEX parcel_next ON parcel (sink, id) WHERE rejected_ns IS NULL;
CREATE INDEX parcel_rejected ON parcel (rejected_ns) WHERE rejected_ns IS NOT NULL;
CREATE TABLE carrier (      -- where the newest carrier of an answer is
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, sink TEXT NOT NULL,
    parcel INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trace_id, span_id, sink)) WITHOUT ROWID;
CREATE TABLE held (
    trace_id TEXT PRIMARY KEY, since_ns INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX held_since ON held (since_ns);
CREATE TABLE addition (     -- what answer spans of held traces get
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
CREATE TABLE kept_carrier ( -- as long as its row; without a record, as long as the spans
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, carrier TEXT NOT NULL,
    supersedes TEXT NOT NULL, payload BLOB NOT NULL, record BLOB, tenant TEXT NOT NULL);
CREATE UNIQUE INDEX kept_carrier_place ON kept_carrier (trace_id, carrier);
CREATE INDEX kept_carrier_record ON kept_carrier (id) WHERE record IS NOT NULL;
{INDEX_TABLES}
CREATE TABLE session (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,
    opened_ns INTEGER NOT NULL, newest_ns INTEGER NOT NULL, not_before_ns INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, revision INTEGER NOT NULL DEFAULT 0,
    is_ended INTEGER NOT NULL DEFAULT 0, written TEXT NOT NULL DEFAULT '',
    owner INTEGER NOT NULL DEFAULT 0);              -- the writer that judges it
CREATE UNIQUE INDEX session_name ON session (tenant, name);
CREATE INDEX session_open ON session (newest_ns) WHERE is_ended = 0;
CREATE INDEX session_ended ON session (newest_ns) WHERE is_ended = 1;
CREATE TABLE session_turn (
    session INTEGER NOT NULL, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, start_ns INTEGER NOT NULL,
    carrier TEXT NOT NULL, turn BLOB NOT NULL, place BLOB NOT NULL,
    digest TEXT NOT NULL DEFAULT '', checked BLOB,
    PRIMARY KEY (session, trace_id, span_id)) WITHOUT ROWID;
CREATE TABLE spent (
    purse TEXT NOT NULL, period TEXT NOT NULL, start_ns INTEGER NOT NULL,
    calls INTEGER NOT NULL, tokens INTEGER NOT NULL, usd_nano INTEGER NOT NULL,
    PRIMARY KEY (purse, period, start_ns)) WITHOUT ROWID;
CREATE TABLE sample_window (    -- counts of the last windows; adaptive rates are computed from them
    writer INTEGER NOT NULL, period TEXT NOT NULL, start_ns INTEGER NOT NULL, tenant TEXT NOT NULL,
    seen INTEGER NOT NULL, demand REAL NOT NULL, floor REAL NOT NULL, kept INTEGER NOT NULL,
    PRIMARY KEY (writer, period, start_ns, tenant)) WITHOUT ROWID;
CREATE TABLE anchor_run (       -- of the drift check
    id INTEGER PRIMARY KEY, began_ns INTEGER NOT NULL, evaluator_version TEXT NOT NULL, run TEXT NOT NULL);
CREATE TABLE anchor_claim (     -- who makes the run that is due
    evaluator_version TEXT PRIMARY KEY, owner INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE judge_model (
    requested TEXT NOT NULL, answered TEXT NOT NULL, fingerprint TEXT NOT NULL,
    first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    PRIMARY KEY (requested, answered, fingerprint)) WITHOUT ROWID;
CREATE TABLE unread (           -- producers of traces in which nothing was read; an account is never deleted
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, producer TEXT NOT NULL,
    attributes TEXT NOT NULL, mapping TEXT NOT NULL, UNIQUE (tenant, producer));
CREATE TABLE sealing_key (id BLOB PRIMARY KEY) WITHOUT ROWID;   -- of the keys that encrypted something

CREATE TABLE ledger (           -- 'seen', or where answers stand; survives their rows
    writer INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, rule TEXT NOT NULL,
    tenant TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (writer, state, reason, rule, tenant)) WITHOUT ROWID;
CREATE TABLE outbox (           -- parcels 'put', 'waiting', 'delivered', 'unconfirmed' and 'rejected'
    writer INTEGER NOT NULL, sink TEXT NOT NULL, state TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (writer, sink, state)) WITHOUT ROWID;
CREATE TABLE dead_letter_sum (
    writer INTEGER NOT NULL, reason TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (writer, reason)) WITHOUT ROWID;
CREATE TABLE unread_sum (
    writer INTEGER NOT NULL, account INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (writer, account)) WITHOUT ROWID;
"""


class Trigger(NamedTuple):
    """Statements that run for each changed row of a table."""

    name: str
    event: str
    """Such as ``AFTER INSERT ON job``."""
    when: str
    """A condition on ``OLD`` and ``NEW``; empty if there is none."""
    body: str


def _count(table: str, number: str = "1", **key: str) -> str:
    """Return the statement that adds to a sum of the writer."""
    return (
        f"INSERT INTO {table} (writer, {', '.join(key)}, number)"
        f" VALUES (this_writer(), {', '.join(key.values())}, {number})"
        f" ON CONFLICT (writer, {', '.join(key)}) DO UPDATE SET number = {table}.number + excluded.number;\n"
    )


def _stand(row: str, number: str = "1") -> str:
    return _count(
        "ledger",
        number,
        state=f"{row}.stands",
        reason=f"{row}.why",
        rule=f"{row}.rule",
        tenant=f"{row}.account",
    )


def _seen(row: str, number: str) -> str:
    return _count("ledger", number, state="'seen'", reason="''", rule="''", tenant=f"{row}.account")


def _is_counted(row: str) -> str:
    return f"CASE WHEN {row}.stands = 'superseded' THEN 0 ELSE 1 END"


def _parcels(state: str, number: str = "1", row: str = "OLD") -> str:
    return _count("outbox", number, sink=f"{row}.sink", state=f"'{state}'")


def _carrier(state: str, reason: str, row: str = "NEW") -> str:
    return (
        f"UPDATE carrier SET state = '{state}', reason = {reason} WHERE trace_id = {row}.trace_id"
        f" AND span_id = {row}.span_id AND sink = {row}.sink AND parcel = {row}.id;\n"
    )


def triggers() -> Iterator[Trigger]:
    """Yield the triggers that keep the sums."""
    yield Trigger("answer_seen", "AFTER INSERT ON job", "", _seen("NEW", _is_counted("NEW")) + _stand("NEW"))
    yield Trigger(
        "answer_moved",
        "AFTER UPDATE ON job",
        "OLD.stands != NEW.stands OR OLD.why != NEW.why OR OLD.rule != NEW.rule",
        _stand("OLD", "-1")
        + _stand("NEW")
        + _seen("NEW", f"({_is_counted('NEW')}) - ({_is_counted('OLD')})"),
    )
    expired = _count("ledger", state="'expired'", reason="'retention'", rule="OLD.rule", tenant="OLD.account")
    yield Trigger(
        "answer_expired", "AFTER DELETE ON job", "OLD.state != 'ended'", _stand("OLD", "-1") + expired
    )
    yield Trigger(
        "parcel_put",
        "AFTER INSERT ON parcel",
        "",
        _parcels("put", row="NEW") + _parcels("waiting", row="NEW"),
    )
    yield Trigger(
        "carrier_put",
        "AFTER INSERT ON parcel",
        "NEW.trace_id != ''",
        "INSERT INTO carrier (trace_id, span_id, sink, parcel, state)"
        " VALUES (NEW.trace_id, NEW.span_id, NEW.sink, NEW.id, 'waiting')"
        " ON CONFLICT (trace_id, span_id, sink) DO UPDATE"
        " SET parcel = excluded.parcel, state = 'waiting', reason = '';\n",
    )
    yield Trigger(
        "parcel_rejected",
        "AFTER UPDATE ON parcel",
        "OLD.rejected_ns IS NULL AND NEW.rejected_ns IS NOT NULL",
        _parcels("waiting", "-1") + _parcels("rejected") + _carrier("rejected", "NEW.reason"),
    )
    yield Trigger(
        "parcel_sent_again",
        "AFTER UPDATE ON parcel",
        "OLD.rejected_ns IS NOT NULL AND NEW.rejected_ns IS NULL",
        _parcels("rejected", "-1") + _parcels("waiting") + _carrier("waiting", "''"),
    )
    yield Trigger(
        "parcel_delivered",
        "AFTER DELETE ON parcel",
        "OLD.rejected_ns IS NULL AND OLD.unconfirmed = ''",
        _parcels("waiting", "-1") + _parcels("delivered") + _carrier("delivered", "reason", "OLD"),
    )
    yield Trigger(
        "parcel_unconfirmed",
        "AFTER DELETE ON parcel",
        "OLD.rejected_ns IS NULL AND OLD.unconfirmed != ''",
        _parcels("waiting", "-1")
        + _parcels("unconfirmed")
        + _carrier("unconfirmed", "OLD.unconfirmed", "OLD"),
    )
    yield Trigger(
        "trace_read",
        "AFTER UPDATE ON trace",
        "OLD.unread IS NOT NULL AND (NEW.unread IS NULL OR NEW.unread != OLD.unread)",
        _count("unread_sum", "-1", account="OLD.unread"),
    )
    yield Trigger(
        "trace_unread",
        "AFTER UPDATE ON trace",
        "NEW.unread IS NOT NULL AND (OLD.unread IS NULL OR NEW.unread != OLD.unread)",
        _count("unread_sum", account="NEW.unread"),
    )


SUMS: Final = frozenset({"ledger", "outbox", "carrier", "dead_letter_sum"})
"""The tables that triggers fill when rows are added."""
