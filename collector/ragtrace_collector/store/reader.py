"""The read-only door to a store: nothing is written, no writer waits, and content is decrypted."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from ragtrace import semconv
from ragtrace.answer_sources import KeptAnswer
from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import CodecError, ReadError
from ragtrace.model import RagRecord
from ragtrace.sql import Db
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.store._judged import unpacked
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.trace_key import BEHIND_ID, tenant_of, trace_id_of, trace_key


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
        if missing := self._cipher.missing_key(payload):
            raise ReadError(self._locked(missing))
        return self._decrypted(payload, key)

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

    def _decrypted(self, payload: bytes, key: str) -> bytes:
        if not self._cipher.keys:
            return payload
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(payload, key)
        except InvalidTag as exc:
            raise self._fault(key, "cannot be decrypted: it was changed, damaged or moved") from exc

    def _fault(self, key: str, what: str) -> ReadError:
        return ReadError(f"{self._database.name!r}: the content of trace {trace_id_of(key)} {what}")

    def _locked(self, missing: str) -> str:
        if not self._cipher.keys:
            return (
                f"{self._database.name!r} is encrypted, and no key was given: name the collector's "
                "configuration with --config: its `store.encryption_keys` decrypt the store"
            )
        return (
            f"{self._database.name!r} is encrypted with the key {missing}, which is not among those given: "
            "add that key to `store.encryption_keys`, or set the variable that it is in"
        )


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
