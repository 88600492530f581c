"""The judged answers of a SQLite store: the rows of the index, and the carriers that are kept beside them.

A row has no content and is not encrypted; a carrier is encrypted as spans are. A row's tenant is that of the
token that brought the trace, else that of the sampling decision.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ragtrace.answers.index.writes import NameCache, forget, note_feedback, put
from ragtrace.answers.summary import AnswerKey
from ragtrace_collector.store.port import IndexSize, Job, KeptCarrier
from ragtrace_collector.store.trace_key import tenant_of, trace_id_of

KEPT: Final = """
CREATE TABLE kept_carrier (     -- until the spans of its trace are deleted
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, carrier TEXT NOT NULL,
    supersedes TEXT NOT NULL, payload BLOB NOT NULL);
CREATE UNIQUE INDEX kept_carrier_place ON kept_carrier (trace_id, carrier);
"""
_ALL: Final = 1 << 62
_ROWS_AT_ONCE: Final = 200
"""A row changes its sums, too: so many take as long as what else is deleted at once."""


def keep(db: sqlite3.Connection, job: Job, kept: KeptCarrier, names: NameCache) -> None:
    """Add an evaluation to the index and keep its carrier, inside the transaction that ends the job."""
    summary = kept.summary
    if summary.supersedes:
        summary = replace(summary, supersedes=_superseded(db, job, summary.supersedes))
    put(db, summary, names)
    db.execute(
        "INSERT OR REPLACE INTO kept_carrier (trace_id, span_id, carrier, supersedes, payload)"
        " VALUES (?1, ?2, ?3, ?4, sealed(?5, ?1))",
        (job.trace_id, job.span_id, summary.carrier_span_id, summary.supersedes, kept.payload),
    )


def _superseded(db: sqlite3.Connection, job: Job, named: str) -> str:
    """Return the carrier that is superseded: if scores were written on an answer span, its id is named."""
    found = db.execute(
        "SELECT carrier FROM kept_carrier WHERE trace_id = ?1 AND (carrier = ?2 OR span_id = ?2)"
        " ORDER BY id DESC LIMIT 1",
        (job.trace_id, named),
    ).fetchone()
    return str(found[0]) if found else named


def note(db: sqlite3.Connection, trace_id: str, feedback: Mapping[str, str]) -> None:
    """Note feedback by span on a trace's answers; without a span, it is on every answer of the trace."""
    for span_id, thumbs in feedback.items():
        for answer, tenant in _answers(db, trace_id, span_id):
            note_feedback(db, AnswerKey(trace_id_of(trace_id), answer, tenant), thumbs)


def _answers(db: sqlite3.Connection, trace_id: str, span_id: str) -> list[tuple[str, str]]:
    rows = db.execute(
        "SELECT span_id, tenant FROM job WHERE trace_id = ?1 AND (?2 = '' OR span_id = ?2)",
        (trace_id, span_id),
    )
    return [(answer, tenant_of(trace_id) or tenant) for answer, tenant in rows.fetchall()]


def forget_carriers(db: sqlite3.Connection, traces: list[tuple[str]]) -> None:
    """Delete the kept carriers of traces."""
    db.executemany("DELETE FROM kept_carrier WHERE trace_id = ?", traces)


def forget_rows(db: sqlite3.Connection, *, before_ns: int, most_rows: int | None) -> int:
    """Delete some rows, the oldest first: those from before a time, and those beyond a number."""
    most = _ALL if most_rows is None else most_rows
    return forget(db, before_ns=before_ns, most_rows=most, at_once=_ROWS_AT_ONCE)


def size(db: sqlite3.Connection) -> IndexSize:
    """Return how much the index holds."""
    (rows,) = db.execute("SELECT rows FROM answer_size").fetchone()
    (oldest_ns,) = db.execute("SELECT min(time_ns) FROM answer_row").fetchone()
    return IndexSize(rows=rows, oldest_ns=oldest_ns)
