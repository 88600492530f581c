"""Judged answers: the rows of the index, what is kept of each to open it, and the read-only door to it.

The names and numbers of a row are not encrypted; its question, carrier and record are, as spans are. A row's
tenant is that of the token that brought the trace, else that of the sampling decision. Readers keep no writer
waiting.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pydantic import TypeAdapter

from ragtrace import semconv
from ragtrace.answer_sources import KeptAnswer
from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.index_rows import forget as forget_index_rows
from ragtrace.answers.index_rows import note_feedback, put
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import CodecError, ReadError
from ragtrace.model import RagRecord
from ragtrace.sql import Db
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher, Undecipherable
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.records import (
    BEHIND_ID,
    Job,
    KeptCarrier,
    tenant_of,
    trace_id_of,
    trace_key,
)


def index_of(database: Database, cipher: PayloadCipher = NO_CIPHER) -> AnswerIndex:
    """Return the index of the judged answers in a store, which a collector may be writing meanwhile.

    Its methods raise ReadError if there is no store, or none of this version.
    """
    return AnswerIndex(database.reading, unseal=cipher.decrypt_or_nothing)


class StoreReader:
    """A [`TraceReader`][ragtrace.ports.TraceReader] of the traces that a collector still keeps."""

    def __init__(self, database: Database, cipher: PayloadCipher = NO_CIPHER) -> None:
        self._database = database
        self._cipher = cipher

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the store has none (any more).

        ``@`` and a tenant may follow the id, because several tenants may use the same trace id. The tenant is
        that of the token, or of an answer in the trace if no token named one.

        Raises:
            ReadError: there is no collector's store, or it cannot be read, several tenants have the trace, or
                its spans are encrypted with a key that was not given.
        """
        return await asyncio.to_thread(self._get, trace_id)

    async def kept(self, key: AnswerKey) -> KeptAnswer:
        """Return what is kept of an answer.

        Its carriers are not among the spans of the trace, so that nothing reads them as the application's.

        Raises:
            ReadError: the file is no collector's store or cannot be read, or they are damaged, or encrypted
                with a key that was not given.
        """
        return await asyncio.to_thread(self._kept, key)

    async def traces(self) -> AsyncIterator[Trace]:
        """Yield every trace in the store.

        Raises:
            ReadError: there is no collector's store, or it cannot be read, or spans are encrypted with a key
                that was not given.
        """
        for key in await asyncio.to_thread(self._keys):
            trace = await asyncio.to_thread(self._of_key, key)
            if trace is not None:  # else it expired in the meantime
                yield trace

    async def aclose(self) -> None:
        """Do nothing: the store is closed after every reading."""

    def _get(self, wanted: str) -> Trace | None:
        trace_id = trace_id_of(wanted).lower()
        with self._database.reading() as db:
            keys = _keys_of(db, trace_id)
            if BEHIND_ID in wanted:
                keys = _of_tenant(db, keys, tenant_of(wanted))
            if len(keys) > 1:
                named = ", ".join(key if BEHIND_ID in key else f"{key}{BEHIND_ID}" for key in keys)
                raise ReadError(f"several tenants have a trace {trace_id}: name one of {named}")
            return self._trace(db, keys[0]) if keys else None

    def _kept(self, answer: AnswerKey) -> KeptAnswer:
        carriers: list[Span] = []
        record, is_forgotten = None, False
        keys = (answer.trace_id, trace_key(answer.trace_id, answer.tenant))
        with self._database.reading() as db:
            for key, span_id, supersedes, payload, packed in db.execute(_KEPT, (*keys, answer.tenant)):
                is_own = span_id == answer.span_id
                is_forgotten = not payload if is_own else is_forgotten
                if payload:
                    told = _superseding(supersedes)
                    spans = self._spans(payload, key)
                    carriers += (replace(span, attributes={**span.attributes, **told}) for span in spans)
                if is_own and packed is not None:
                    record = self._record(packed, key)
        return KeptAnswer(carriers=carriers, record=record, is_forgotten=is_forgotten)

    def _keys(self) -> list[str]:
        with self._database.reading() as db:
            return _column(db, "SELECT DISTINCT trace_id FROM slice")

    def _of_key(self, key: str) -> Trace | None:
        with self._database.reading() as db:
            return self._trace(db, key)

    def _trace(self, db: Db, key: str) -> Trace | None:
        rows = db.execute("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", (key,))
        spans = [span for (payload,) in rows for span in self._spans(payload, key)]
        return Trace.of(trace_id_of(key), spans) if spans else None

    def _opened(self, payload: bytes, key: str) -> bytes:
        try:
            return self._cipher.decrypt(payload, key)
        except Undecipherable as exc:
            if exc.missing_key:
                raise ReadError(
                    f"{self._database.name!r} is encrypted with the key {exc.missing_key}, which is not among"
                    " those given: add that key to `store.encryption_keys`, and name the configuration with"
                    " --config, or set the variable that it is in"
                ) from exc
            raise self._fault(key, "cannot be decrypted: it was changed, damaged or moved") from exc

    def _spans(self, payload: bytes, key: str) -> tuple[Span, ...]:
        opened = self._opened(payload, key)
        try:
            return decode(opened)
        except CodecError as exc:
            raise self._fault(key, f"is damaged: {exc}") from exc

    def _record(self, packed: bytes, key: str) -> RagRecord:
        opened = self._opened(packed, key)
        try:
            return unpacked(opened)
        except (ValueError, zlib.error):  # not chained: it quotes the content
            raise self._fault(key, "is damaged: what was judged is not to be read") from None

    def _fault(self, key: str, what: str) -> ReadError:
        return ReadError(f"{self._database.name!r}: the content of trace {trace_id_of(key)} {what}")


def _keys_of(db: Db, trace_id: str) -> list[str]:
    query = "SELECT DISTINCT trace_id FROM slice WHERE trace_id = ? OR (trace_id > ? AND trace_id < ?)"
    return _column(db, query, trace_id, f"{trace_id}{BEHIND_ID}", f"{trace_id}A")


def _column(db: Db, query: str, *values: str) -> list[str]:
    return [value for (value,) in db.execute(query, values)]


def _of_tenant(db: Db, keys: Sequence[str], tenant: str) -> list[str]:
    """Return the keys with a tenant, or else that of a trace without one whose answers name the tenant."""
    own = [key for key in keys if tenant_of(key) == tenant]
    if own or not tenant:
        return own
    plain = [key for key in keys if not tenant_of(key)]
    query = "SELECT 1 FROM job WHERE trace_id = ? AND tenant = ? LIMIT 1"
    return [key for key in plain if db.execute(query, (key, tenant)).fetchone()]


_KEPT: Final = (
    "SELECT trace_id, span_id, supersedes, payload, record FROM kept_carrier"
    " WHERE trace_id IN (?, ?) AND tenant = ? ORDER BY id"
)


def _superseding(carrier: str) -> dict[str, str]:
    return {semconv.EVAL_SUPERSEDES: carrier} if carrier else {}


_RECORD: Final = TypeAdapter(RagRecord)
_ALL: Final = 1 << 62
_ROWS_AT_ONCE: Final = 200


def keep_answer(db: Db, job: Job, kept: KeptCarrier, cipher: PayloadCipher) -> None:
    """Add an evaluation to the index and keep its carrier, inside the transaction that ends the job."""
    summary = kept.summary
    if summary.supersedes:
        summary = replace(summary, supersedes=_superseded(db, job, summary.supersedes))
    put(db, summary, cipher.encrypt)
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
    """Return the record of `keep_answer`."""
    return _RECORD.validate_json(zlib.decompress(packed))


def _superseded(db: Db, job: Job, named: str) -> str:
    """Return the carrier that is superseded: if scores were written on an answer span, its id is named."""
    found = db.execute(
        "SELECT carrier FROM kept_carrier WHERE trace_id = ? AND (carrier = ? OR span_id = ?)"
        " ORDER BY id DESC LIMIT 1",
        (job.trace_id, named, named),
    ).fetchone()
    return str(found[0]) if found else named


def note_on_answers(db: Db, trace_id: str, feedback: Mapping[str, str]) -> None:
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
    gone = forget_index_rows(db, before_ns=before_ns, most_rows=most, at_once=_ROWS_AT_ONCE)
    db.executemany(
        "DELETE FROM kept_carrier WHERE trace_id >= ? AND trace_id < ? AND carrier = ?",
        [(row["trace_id"], f"{row['trace_id']}A", row["carrier"]) for row in gone],
    )
    return len(gone)
