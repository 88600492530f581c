"""The judged answers of a SQLite store: the rows of the index, and what is kept of each to open it.

The names and numbers of a row are not encrypted; its question, carrier and record are, as spans are. A row's
tenant is that of the token that brought the trace, else that of the sampling decision.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydantic import TypeAdapter

from ragtrace.answers.index.writes import forget, note_feedback, put
from ragtrace.answers.index.writes import size as rows_in
from ragtrace.answers.summary import AnswerKey
from ragtrace.model import RagRecord
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.port import IndexSize, Job, KeptCarrier
from ragtrace_collector.store.trace_key import tenant_of, trace_id_of

KEPT: Final = """
CREATE TABLE kept_carrier (     -- until the spans of its trace are deleted
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, carrier TEXT NOT NULL,
    supersedes TEXT NOT NULL, payload BLOB NOT NULL);
CREATE UNIQUE INDEX kept_carrier_place ON kept_carrier (trace_id, carrier);
"""
KEPT_RECORDS: Final = """
ALTER TABLE kept_carrier ADD COLUMN record BLOB;    -- then both stay as long as the row
ALTER TABLE kept_carrier ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE kept_carrier SET tenant = iif(instr(trace_id, '@'), substr(trace_id, instr(trace_id, '@') + 1),
    coalesce((SELECT tenant FROM job
        WHERE job.trace_id = kept_carrier.trace_id AND job.span_id = kept_carrier.span_id), ''));
CREATE INDEX kept_carrier_record ON kept_carrier (id) WHERE record IS NOT NULL;
"""
_RECORD: Final = TypeAdapter(RagRecord)
_ALL: Final = 1 << 62
_ROWS_AT_ONCE: Final = 200
"""A row changes its sums, too: so many take as long as what else is deleted at once."""


def keep(db: sqlite3.Connection, job: Job, kept: KeptCarrier, cipher: PayloadCipher) -> None:
    """Add an evaluation to the index and keep its carrier, inside the transaction that ends the job."""
    summary = kept.summary
    if summary.supersedes:
        summary = replace(summary, supersedes=_superseded(db, job, summary.supersedes))
    put(db, summary, cipher.encrypt)
    db.execute(
        "INSERT OR REPLACE INTO kept_carrier"
        " (trace_id, span_id, carrier, supersedes, payload, record, tenant)"
        " VALUES (?1, ?2, ?3, ?4, sealed(?5, ?1), CASE WHEN ?6 IS NOT NULL THEN sealed(?6, ?1) END, ?7)",
        (
            *(job.trace_id, job.span_id, summary.carrier_span_id, summary.supersedes, kept.payload),
            None if kept.record is None else _packed(kept.record),
            summary.key.tenant,
        ),
    )


def _packed(record: RagRecord) -> bytes:
    """Return a record in few bytes, without the metadata of chunks, which no page shows."""
    chunks = tuple(replace(chunk, metadata={}) for chunk in record.chunks)
    target = record.target
    if target is not None:
        named = {key: value for key, value in target.resource.items() if isinstance(value, str)}
        target = replace(target, resource=named)
    return zlib.compress(_RECORD.dump_json(replace(record, chunks=chunks, target=target, hops=None)))


def unpacked(packed: bytes) -> RagRecord:
    """Return the record of `keep`."""
    return _RECORD.validate_json(zlib.decompress(packed))


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
    """Delete the kept carriers of traces, unless they stay with their rows."""
    db.executemany(
        f"DELETE FROM kept_carrier WHERE trace_id = ? AND record IS NULL AND payload != {FORGOTTEN}", traces
    )


FORGOTTEN: Final = "x''"
"""The payload of a carrier whose content went before its row."""


def forget_content(db: sqlite3.Connection) -> int:
    """Delete the content of some judged answers, the oldest first; their rows stay, and say so."""
    return db.execute(
        f"UPDATE kept_carrier SET payload = {FORGOTTEN}, record = NULL WHERE id IN"
        " (SELECT id FROM kept_carrier WHERE record IS NOT NULL ORDER BY id LIMIT ?)",
        (_ROWS_AT_ONCE,),
    ).rowcount


def forget_questions(db: sqlite3.Connection) -> int:
    """Delete the questions of some rows; return how many."""
    return db.execute(
        "UPDATE answer_row SET question = NULL WHERE id IN"
        " (SELECT id FROM answer_row WHERE question IS NOT NULL LIMIT ?)",
        (_ROWS_AT_ONCE,),
    ).rowcount


def forget_rows(db: sqlite3.Connection, *, before_ns: int, most_rows: int | None) -> int:
    """Delete some rows with their content, the oldest first: from before a time, and beyond a number."""
    most = _ALL if most_rows is None else most_rows
    gone = forget(db, before_ns=before_ns, most_rows=most, at_once=_ROWS_AT_ONCE)
    db.executemany(
        "DELETE FROM kept_carrier WHERE trace_id >= ?1 AND trace_id < ?1 || 'A' AND carrier = ?2",
        [(row["trace_id"], row["carrier"]) for row in gone],
    )
    return len(gone)


def size(db: sqlite3.Connection) -> IndexSize:
    """Return how much the index holds."""
    (oldest_ns,) = db.execute("SELECT min(time_ns) FROM answer_row").fetchone()
    return IndexSize(rows=rows_in(db), oldest_ns=oldest_ns)
