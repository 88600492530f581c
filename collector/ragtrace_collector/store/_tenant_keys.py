"""Migrate what an older ragtrace stored by trace id alone to keys with the tenant.

It runs once, when the collector opens such a store. SQL alone cannot do it: the tenant is in the spans, which
may be encrypted. Each portion is a transaction; the remaining traces are in the table ``unkeyed``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace import semconv
from ragtrace_collector.store.trace_key import trace_key

UNKEYED: Final = """
CREATE TABLE unkeyed (trace_id TEXT PRIMARY KEY) WITHOUT ROWID;     -- whose tenants were not looked at
INSERT INTO unkeyed
    SELECT trace_id FROM trace UNION SELECT trace_id FROM job UNION SELECT trace_id FROM slice;
"""
_AT_ONCE: Final = 100
_OF_ANSWERS: Final = ("job", "carrier", "parcel", "low_answer", "lingering")
"""Tables with rows about one answer each."""


def key_by_tenant(db: sqlite3.Connection, tenants: Collection[str]) -> int:
    """Migrate some of the traces that an older ragtrace stored; return how many were read, 0 at the end.

    A trace whose spans came with tokens of several tenants becomes a trace for each tenant, and is decided
    again, because a span of one may have replaced an answer of another.
    """
    if not tenants:  # tenants that spans claim are not authenticated: they stay as they were
        db.execute("DELETE FROM unkeyed")
        return 0
    found = db.execute("SELECT trace_id FROM unkeyed LIMIT ?", (_AT_ONCE,)).fetchall()
    for (trace_id,) in found:
        _key(db, trace_id, tenants)
        db.execute("DELETE FROM unkeyed WHERE trace_id = ?", (trace_id,))
    return len(found)


def _key(db: sqlite3.Connection, trace_id: str, tenants: Collection[str]) -> None:
    slices = [
        (seq, _owner(payload, tenants))
        for seq, payload in db.execute(
            "SELECT seq, unsealed(payload, trace_id) FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,)
        ).fetchall()
    ]
    jobs = [
        (span_id, tenant if tenant in tenants else "")
        for span_id, tenant in db.execute("SELECT span_id, tenant FROM job WHERE trace_id = ?", (trace_id,))
    ]
    owners = {owner for _, owner in (*slices, *jobs)}
    for owner in sorted(owners - {""}):
        key = trace_key(trace_id, owner)
        seqs = [seq for seq, each in slices if each == owner]
        _copy_trace(db, trace_id, key, slices=len(seqs), is_whole=len(owners) == 1)
        _move_slices(db, trace_id, key, seqs)
        for span_id in (span_id for span_id, each in jobs if each == owner):
            _move_answer(db, trace_id, key, span_id)
    if owners - {""}:
        _leave(db, trace_id, slices=sum(not each for _, each in slices), has_jobs="" in {o for _, o in jobs})


def _owner(payload: bytes, tenants: Collection[str]) -> str:
    """Return the tenant that the receivers wrote on these spans; empty if it is not known."""
    try:
        request = ExportTraceServiceRequest.FromString(payload)
    except DecodeError:
        return ""
    named = {
        attribute.value.string_value
        for resource_spans in request.resource_spans
        for attribute in resource_spans.resource.attributes
        if attribute.key == semconv.TENANT
    }
    return next(iter(named)) if len(named) == 1 and named <= set(tenants) else ""


def _copy_trace(db: sqlite3.Connection, trace_id: str, key: str, *, slices: int, is_whole: bool) -> None:
    counts = "slices, settled_slices" if is_whole else f"{slices:d}, 0"
    db.execute(
        "INSERT INTO trace (trace_id, last_arrival_ns, settled_ns, slices, settled_slices, is_cut)"
        f" SELECT ?, last_arrival_ns, settled_ns, {counts}, is_cut FROM trace WHERE trace_id = ?",
        (key, trace_id),
    )
    db.execute("INSERT INTO held SELECT ?, since_ns, bytes FROM held WHERE trace_id = ?", (key, trace_id))


def _move_slices(db: sqlite3.Connection, trace_id: str, key: str, seqs: Sequence[int]) -> None:
    db.executemany(
        "UPDATE slice SET trace_id = ?1, payload = sealed(unsealed(payload, ?2), ?1) WHERE seq = ?3",
        [(key, trace_id, seq) for seq in seqs],
    )


def _move_answer(db: sqlite3.Connection, trace_id: str, key: str, span_id: str) -> None:
    for table in _OF_ANSWERS:
        db.execute(
            f"UPDATE {table} SET trace_id = ? WHERE trace_id = ? AND span_id = ?", (key, trace_id, span_id)
        )
    db.execute(
        "UPDATE addition SET trace_id = ?1, payload = sealed(unsealed(payload, ?2), ?1)"
        " WHERE trace_id = ?2 AND span_id = ?3",
        (key, trace_id, span_id),
    )


def _leave(db: sqlite3.Connection, trace_id: str, *, slices: int, has_jobs: bool) -> None:
    """Keep the part of the old trace without a tenant, to be decided again; else delete the trace."""
    if slices or has_jobs:
        db.execute("UPDATE trace SET slices = ?, settled_slices = 0 WHERE trace_id = ?", (slices, trace_id))
        return
    for table in ("trace", "held", "addition"):
        db.execute(f"DELETE FROM {table} WHERE trace_id = ?", (trace_id,))
