"""Stored spans, put together again: a trace, and the RAG answers in it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import lru_cache

from ragtrace.model import RagRecord
from ragtrace.traces.extract import AttributeMapping, extract_records
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Trace
from ragtrace_collector.stages import place_of
from ragtrace_collector.store.port import WorkStore
from ragtrace_collector.telemetry import Counters, Counts

__all__ = ["AnswerReader", "Answers"]

log = logging.getLogger("ragtrace.collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the store holds of a trace, and the RAG answers in it."""

    trace: Trace
    records: tuple[RagRecord, ...]

    def of(self, span_id: str) -> RagRecord | None:
        """Return the answer on this span, or ``None``."""
        return next((each for each in self.records if each.target and each.target.span_id == span_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReader:
    """Reads stored traces, in a thread: a large one takes seconds, and senders must not wait for them."""

    store: WorkStore
    counters: Counters
    mapping: AttributeMapping | None = None
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two evaluators with answers of one trace would take it apart at the same time, instead of once."""

    async def read(self, trace_id: str) -> Answers:
        """Assemble a trace and find its answers. One whose spans cannot be read has none."""
        payloads = await self.store.payloads(trace_id)
        async with self._one:
            try:
                return await asyncio.to_thread(_answers, trace_id, payloads, self.mapping)
            except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item: strangers' spans
                self.counters.add(Counts.STAGE_ERRORS)
                log.error("trace %s: its spans could not be read: %s", trace_id, place_of(exc))  # noqa: TRY400
                return Answers(trace=Trace(trace_id=trace_id, spans=()), records=())


@lru_cache(maxsize=4)
def _answers(trace_id: str, payloads: tuple[bytes, ...], mapping: AttributeMapping | None) -> Answers:
    # cached: the answers of a trace are judged one after the other, and each needs the whole trace
    trace = Trace.of(trace_id, (span for payload in payloads for span in decode(payload)))
    return Answers(trace=trace, records=extract_records(trace, mapping).records)
