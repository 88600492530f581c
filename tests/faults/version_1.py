"""The tables of the first version of the store, as it made them: files of that kind must stay readable."""

from typing import Final

__all__ = ["VERSION_1"]

VERSION_1: Final = """
PRAGMA auto_vacuum=INCREMENTAL;
PRAGMA journal_mode=WAL;
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
PRAGMA user_version = 1;
"""
