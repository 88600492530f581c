"""The judged answers of a SQLite store: the rows of the index, and what is kept of each to open it.

The names and numbers of a row are not encrypted; its question, carrier and record are, as spans are. A row's
tenant is that of the token that brought the trace, else that of the sampling decision.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydantic import TypeAdapter

from ragtrace.answers.index_rows import Known, forget, note_feedback, put
from ragtrace.answers.index_rows import size as rows_in
from ragtrace.answers.summary import AnswerKey
from ragtrace.model import RagRecord
from ragtrace.sql import Db
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.records import IndexSize, Job, KeptCarrier
from ragtrace_collector.store.trace_key import tenant_of, trace_id_of

_RECORD: Final = TypeAdapter(RagRecord)
_ALL: Final = 1 << 62
_ROWS_AT_ONCE: Final = 200
"""A row changes its sums, too: so many take as long as what else is deleted at once."""


def keep(db: Db, job: Job, kept: KeptCarrier, cipher: PayloadCipher, known: Known | None) -> None:
    """Add an evaluation to the index and keep its carrier, inside the transaction that ends the job."""
    summary = kept.summary
    if summary.supersedes:
        summary = replace(summary, supersedes=_superseded(db, job, summary.supersedes))
    put(db, summary, cipher.encrypt, known)
    record = None if kept.record is None else cipher.encrypt(_packed(kept.record), job.trace_id)
    db.execute(
        "INSERT INTO kept_carrier (trace_id, carrier, span_id, supersedes, payload, record, tenant)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (trace_id, carrier) DO UPDATE SET"
        " span_id = excluded.span_id, supersedes = excluded.supersedes, payload = excluded.payload,"
        " record = excluded.record, tenant = excluded.tenant",
        (
            *(job.trace_id, summary.carrier_span_id, job.span_id, summary.supersedes),
            *(cipher.encrypt(kept.payload, job.trace_id), record, summary.key.tenant),
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


def _superseded(db: Db, job: Job, named: str) -> str:
    """Return the carrier that is superseded: if scores were written on an answer span, its id is named."""
    found = db.execute(
        "SELECT carrier FROM kept_carrier WHERE trace_id = ? AND (carrier = ? OR span_id = ?)"
        " ORDER BY id DESC LIMIT 1",
        (job.trace_id, named, named),
    ).fetchone()
    return str(found[0]) if found else named


def note(db: Db, trace_id: str, feedback: Mapping[str, str]) -> None:
    """Note feedback by span on a trace's answers; without a span, it is on every answer of the trace."""
    for span_id, thumbs in feedback.items():
        for answer, tenant in _answers(db, trace_id, span_id):
            note_feedback(db, AnswerKey(trace_id_of(trace_id), answer, tenant), thumbs)


def _answers(db: Db, trace_id: str, span_id: str) -> list[tuple[str, str]]:
    rows = db.execute("SELECT span_id, tenant FROM job WHERE trace_id = ?", (trace_id,)).fetchall()
    return [(answer, tenant_of(trace_id) or tenant) for answer, tenant in rows if span_id in ("", answer)]


def forget_carriers(db: Db, traces: list[tuple[str]]) -> None:
    """Delete the kept carriers of traces, unless they stay with their rows."""
    db.executemany(
        "DELETE FROM kept_carrier WHERE trace_id = ? AND record IS NULL AND payload != ?",
        [(*trace, _FORGOTTEN) for trace in traces],
    )


_FORGOTTEN: Final = b""
"""The payload of a carrier whose content went before its row."""


def forget_content(db: Db) -> int:
    """Delete the content of some judged answers, the oldest first; their rows stay, and say so."""
    return db.execute(
        "UPDATE kept_carrier SET payload = ?, record = NULL WHERE id IN"
        " (SELECT id FROM kept_carrier WHERE record IS NOT NULL ORDER BY id LIMIT ?)",
        (_FORGOTTEN, _ROWS_AT_ONCE),
    ).rowcount


def forget_questions(db: Db) -> int:
    """Delete the questions of some rows; return how many."""
    return db.execute(
        "UPDATE answer_row SET question = NULL WHERE id IN"
        " (SELECT id FROM answer_row WHERE question IS NOT NULL LIMIT ?)",
        (_ROWS_AT_ONCE,),
    ).rowcount


def forget_rows(db: Db, *, before_ns: int, most_rows: int | None) -> int:
    """Delete some rows with their content, the oldest first: from before a time, and beyond a number."""
    most = _ALL if most_rows is None else most_rows
    gone = forget(db, before_ns=before_ns, most_rows=most, at_once=_ROWS_AT_ONCE)
    db.executemany(
        "DELETE FROM kept_carrier WHERE trace_id >= ? AND trace_id < ? AND carrier = ?",
        [(row["trace_id"], f"{row['trace_id']}A", row["carrier"]) for row in gone],
    )
    return len(gone)


def size(db: Db) -> IndexSize:
    """Return how much the index holds."""
    (oldest_ns,) = db.execute("SELECT min(time_ns) FROM answer_row").fetchone()
    return IndexSize(rows=rows_in(db), oldest_ns=oldest_ns)
