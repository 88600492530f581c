"""The tables of the store, as migration steps from one version of the file to the next."""

from __future__ import annotations

import sqlite3
from typing import Final

from ragtrace.answers.index.tables import INDEX_TABLES
from ragtrace.sqlite_file import migrate
from ragtrace_collector.store._dead_letters import DEAD_LETTERS
from ragtrace_collector.store._holds import HOLDS
from ragtrace_collector.store._judged import KEPT, KEPT_RECORDS
from ragtrace_collector.store._ledger_tables import LEDGER, UNCONFIRMED
from ragtrace_collector.store._quarantine import SUSPECTS
from ragtrace_collector.store._tenant_keys import UNKEYED
from ragtrace_collector.store._unread import UNREAD
from ragtrace_collector.store.budget import BUDGET
from ragtrace_collector.store.cipher import KEYS
from ragtrace_collector.store.drift import DRIFT
from ragtrace_collector.store.leases import LEASES
from ragtrace_collector.store.open_errors import DAMAGED, UnfitFile
from ragtrace_collector.store.revisions import REVISIONS
from ragtrace_collector.store.sampling import SAMPLING, SCREENING
from ragtrace_collector.store.sessions import SESSIONS

_MIGRATIONS: Final = (
    """
CREATE TABLE slice (
    seq INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, payload BLOB NOT NULL);
CREATE INDEX slice_trace ON slice (trace_id);
CREATE TABLE trace (
    trace_id TEXT PRIMARY KEY, last_arrival_ns INTEGER NOT NULL, settled_ns INTEGER) WITHOUT ROWID;
CREATE INDEX trace_settled ON trace (settled_ns);
CREATE TABLE job (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL,
    rule TEXT NOT NULL DEFAULT '', rate REAL NOT NULL DEFAULT 0, probability REAL NOT NULL DEFAULT 0,
    state TEXT NOT NULL,                    -- queued | leased | ended
    attempts INTEGER NOT NULL DEFAULT 0, due_ns INTEGER NOT NULL, ended_ns INTEGER,
    outcome TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
CREATE INDEX job_due ON job (state, due_ns);
CREATE TABLE parcel (
    id INTEGER PRIMARY KEY, sink TEXT NOT NULL, payload BLOB NOT NULL,
    rejected_ns INTEGER, reason TEXT NOT NULL DEFAULT '');
CREATE INDEX parcel_next ON parcel (sink, id) WHERE rejected_ns IS NULL;
""",
    f"""
{LEDGER}
{HOLDS}
{KEYS}
{LEASES}
{BUDGET}
{REVISIONS}
{SAMPLING}
CREATE INDEX job_ended ON job (ended_ns) WHERE state = 'ended';
CREATE INDEX parcel_rejected ON parcel (rejected_ns) WHERE rejected_ns IS NOT NULL;
""",
    SUSPECTS,
    f"""
{UNCONFIRMED}
{UNKEYED}
""",
    f"""
{INDEX_TABLES}
{KEPT}
""",
    DRIFT,
    SESSIONS,
    SCREENING,
    DEAD_LETTERS,
    UNREAD,
    KEPT_RECORDS,
)
"""One step a version. A released step is never changed; a new one is added after it."""
NEWEST: Final = len(_MIGRATIONS)
"""The version of the tables that this ragtrace writes."""


def prepare(db: sqlite3.Connection) -> None:
    """Bring the file to the newest version, a step a transaction.

    Raises:
        sqlite3.Error: it is not a database, cannot be written, is damaged, holds another program's tables, or
            was written by another ragtrace. It is left as it was.
    """
    _refuse_damage(db)
    check_application_id(db)
    db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # takes effect in a new file only
    migrate(db, _MIGRATIONS)


def _refuse_damage(db: sqlite3.Connection) -> None:
    # Measured: half a second a gigabyte in memory. Without it, senders would meet the damage later.
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise UnfitFile(f"it is damaged: {' '.join(found.split())}", DAMAGED)


def check_application_id(db: sqlite3.Connection) -> int:
    """Return the version of a store; 0 for a new file.

    Raises:
        UnfitFile: it holds another program's tables, or was written by another ragtrace.
        sqlite3.Error: it cannot be read.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and not (version and tables >= _OURS):
        raise UnfitFile("it holds the tables of another program", "give the collector a path of its own")
    if version > len(_MIGRATIONS):
        raise UnfitFile(
            f"it was written by another ragtrace: it is of version {version}, and this one knows "
            f"{len(_MIGRATIONS)}",
            "start the ragtrace that wrote it (upgrade, if it is a newer one), or name another path",
        )
    return int(version)


_OURS: Final = frozenset({"slice", "trace", "job", "parcel"})
