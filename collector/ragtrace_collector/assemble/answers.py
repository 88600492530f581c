"""Assemble a trace from its stored spans, and find the RAG answers in it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ragtrace.answers.summary import feedback_in
from ragtrace.errors import CodecError
from ragtrace.model import Gap, Part, RagRecord, SkipReason
from ragtrace.traces.attach import record_sha256
from ragtrace.traces.extract import ExtractRules, Unread, extract_records, is_evaluator
from ragtrace.traces.otlp import SpanRef, decode, parse_request, split_by_trace
from ragtrace.traces.trace import Lineage, Trace
from ragtrace_collector.store.records import Job, JudgedInput, StoredSpans
from ragtrace_collector.store.store import Store
from ragtrace_collector.store.trace_key import trace_id_of
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event, place_of

log = logging.getLogger("ragtrace.collector")

_SMALL_BYTES: Final = 32 << 10
"""Traces up to this size are read in the event loop, in some milliseconds."""
_RECENT_BYTES: Final = 4 << 20
"""The most bytes of read traces kept in memory, in stored size and apart from the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAnswers:
    """A trace as stored, and the RAG answers in it."""

    trace: Trace
    records: tuple[RagRecord, ...]
    stored: StoredSpans
    by_span: Mapping[str, RagRecord] = field(default_factory=dict)
    """The answers by their span."""
    of_evaluators: frozenset[str] = frozenset()
    """Spans that belong to an evaluator, and those below them."""
    unread: Unread | None = None
    """What the trace holds if nothing in it was read."""
    lineage: Lineage = field(default_factory=lambda: Lineage({}))
    """Of each span seen."""
    cpu_ns: int = 0
    """The CPU time that assembling and reading took."""

    def of(self, span_id: str) -> RagRecord | None:
        """Return the answer on this span, or ``None``. It has gaps if spans of the trace were dropped."""
        record = self.by_span.get(span_id)
        return _cut(record) if record and self.stored.is_cut else record

    def of_calls(self, calls: Collection[str]) -> tuple[RagRecord, ...]:
        """Return the answers on or under these spans."""
        below = self.lineage.nearest_above(self.by_span, calls)
        return tuple(
            each
            for each in self.records
            if each.target and (each.target.span_id in calls or each.target.span_id in below)
        )

    def judged(self, span_id: str) -> JudgedInput:
        """Return what identifies the judged record of this span, so that a later one can be compared."""
        record = self.by_span.get(span_id)
        return JudgedInput(record_sha256=record_sha256(record) if record else "", slices=self.stored.slices)

    def moved(self) -> Mapping[str, str | None]:
        """Map spans that no longer hold answers to the spans that now hold them, if that is known.

        The new spans are above or below the old ones, or their records were read from them, too.
        """
        # an answer that came back with its scores looks like an evaluation, and has not moved
        gone = [
            each for each in self.stored.answers if each not in self.by_span and not self.is_evaluation(each)
        ]
        if not gone:
            return {}
        above = self.lineage.nearest_above(gone, self.by_span)
        below = self._first_below(gone)
        beside = self._first_read_by()
        return {each: above.get(each) or below.get(each) or beside.get(each) for each in gone}

    def feedback(self) -> Mapping[str, str]:
        """Return the last feedback, by the span of its answer; by the empty text if it names no span.

        On another span, it is on the nearest answer above, else on the answers below.
        """
        given = list(feedback_in(self.trace.spans))
        others = {each.span_id for each in given if each.span_id not in self.by_span}
        above = self.lineage.nearest_above(others, self.by_span) if others else {}
        below = self.lineage.nearest_above(self.by_span, others) if others else {}
        found: dict[str, str] = {}
        for span_id, thumbs in given:
            if span_id not in others:
                found[span_id] = thumbs
            elif span_id in above:
                found[above[span_id]] = thumbs
            else:
                meant = [answer for answer, other in below.items() if other == span_id]
                found.update(dict.fromkeys(meant or [span_id], thumbs))
        return found

    def is_evaluation(self, span_id: str) -> bool:
        """Say whether the span or an ancestor belongs to an evaluator, so that it is never judged."""
        return span_id in self.of_evaluators

    def _first_below(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Map spans to the answer below them with the least id, passed up from child to parent."""
        nearest = self.lineage.nearest_above((*self.by_span, *ids), frozenset(ids))
        least: dict[str, str] = {}
        for target in sorted(self.by_span):
            above = nearest.get(target)
            while above is not None and above not in least:  # it has a smaller one already
                least[above] = target
                above = nearest.get(above)
        return least

    def _first_read_by(self) -> Mapping[str, str]:
        """Map spans to the first answer that was read from them."""
        found: dict[str, str] = {}
        for each in self.records:
            if each.target:
                for span_id in _read_by(each):
                    found.setdefault(span_id, each.target.span_id)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReader:
    """Reads stored traces, large ones in a thread, because they take seconds and senders must not wait."""

    store: Store
    counters: Counters
    _recent: _Recent = field(default_factory=lambda: _Recent())
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Prevents two workers with answers of one trace from reading it twice at the same time."""

    async def read(self, trace_id: str, rules: ExtractRules) -> TraceAnswers:
        """Assemble a trace and find its answers. A trace whose spans cannot be read has none."""
        stored = await self.store.spans(trace_id)
        try:
            async with self._one:
                return await self._assembled(trace_id, stored, rules)
        except Exception as exc:  # noqa: BLE001 -- one bad trace must not end the stage
            self.counters.add(Counts.STAGE_ERRORS)
            log.error(  # noqa: TRY400 -- its text may quote content
                "trace %s: its spans could not be read: %s",
                trace_id_of(trace_id),
                place_of(exc),
                extra=event("spans_unreadable", trace_id=trace_id_of(trace_id)),
            )
            trace = Trace(trace_id=trace_id_of(trace_id), spans=())
            # answers found before are not known either: they stay as they are
            return TraceAnswers(trace=trace, records=(), stored=stored._replace(answers=()))

    async def read_for(self, job: Job, rules: ExtractRules) -> TraceAnswers:
        """Do the same for a leased answer. What was read when it was queued is usually still valid."""
        kept = self._recent.get(job.trace_id)
        if kept and kept.rules == rules and kept.is_as_of(job):
            return kept.answers
        return await self.read(job.trace_id, rules)

    async def _assembled(self, trace_id: str, stored: StoredSpans, rules: ExtractRules) -> TraceAnswers:
        kept = self._recent.get(trace_id)
        if kept and kept.rules == rules and kept.is_of(stored):
            return replace(kept.answers, stored=stored)
        if sum(map(len, stored.payloads)) <= _SMALL_BYTES:  # faster than handing it to a thread
            answers = _answers(trace_id, stored, rules)
        else:
            answers = await asyncio.to_thread(_answers, trace_id, stored, rules)
        self._recent.keep(trace_id, answers, rules)
        return answers

    async def refs(self, trace_id: str) -> tuple[SpanRef, ...]:
        """Return the refs of a trace's spans; none if they cannot be read."""
        stored = await self.store.spans(trace_id)
        try:
            return await asyncio.to_thread(_refs, stored)
        except CodecError:
            return ()  # logged when the answers are read


class _Kept(NamedTuple):
    """A trace as it was read."""

    answers: TraceAnswers
    """Without the payloads."""
    rules: ExtractRules
    payloads: int
    """Their hash."""
    size: int
    """Theirs, in bytes."""

    def is_of(self, stored: StoredSpans) -> bool:
        """Say whether this is still what the store holds."""
        return self.payloads == hash(stored.payloads)

    def is_as_of(self, job: Job) -> bool:
        """Say whether no spans came until it was leased. The store keeps a trace with such an answer."""
        stored = self.answers.stored
        return (stored.slices, stored.is_cut) == (job.slices, job.is_cut)


class _Recent:
    """A cache of the last traces read: their answers are judged soon, and each needs the whole trace."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._bytes = 0

    def get(self, trace_id: str) -> _Kept | None:
        """Return a trace as read."""
        return self._kept.get(trace_id)

    def keep(self, trace_id: str, answers: TraceAnswers, rules: ExtractRules) -> None:
        """Keep a trace, and evict those read before it."""
        self._drop(trace_id)
        stored, payloads = answers.stored._replace(payloads=()), answers.stored.payloads
        size = sum(map(len, payloads))
        kept = _Kept(replace(answers, stored=stored), rules, hash(payloads), size)
        self._kept[trace_id] = kept
        self._bytes += size
        while self._bytes > _RECENT_BYTES and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, trace_id: str) -> None:
        dropped = self._kept.pop(trace_id, None)
        self._bytes -= dropped.size if dropped else 0


def _answers(trace_id: str, stored: StoredSpans, rules: ExtractRules) -> TraceAnswers:
    begun_ns = time.thread_time_ns()  # CPU time, not wall time: others may use the machine
    trace = Trace.of(trace_id_of(trace_id), (span for payload in stored.payloads for span in decode(payload)))
    extraction = extract_records(trace, rules)
    records = extraction.records
    lineage = Lineage({span.span_id: span.parent_span_id for span in trace.spans})
    evaluators = {span.span_id for span in trace.spans if is_evaluator(span)}
    below = lineage.nearest_above((span.span_id for span in trace.spans), evaluators)
    return TraceAnswers(
        trace=trace,
        records=records,
        stored=stored,
        by_span={each.target.span_id: each for each in reversed(records) if each.target},
        of_evaluators=frozenset(evaluators | below.keys()),
        unread=extraction.unread,
        lineage=lineage,
        cpu_ns=time.thread_time_ns() - begun_ns,
    )


def _read_by(record: RagRecord) -> set[str]:
    return {each.span_id for each in (*record.provenance, *record.passed_over)}


def _refs(stored: StoredSpans) -> tuple[SpanRef, ...]:
    return tuple(ref for payload in stored.payloads for ref in _refs_in(payload))


def _refs_in(payload: bytes) -> Iterator[SpanRef]:
    for part in split_by_trace(parse_request(payload, encoding="protobuf"), body=payload).slices:
        yield from part.spans


def _cut(record: RagRecord) -> RagRecord:
    gaps = [Gap(part=part, reason=SkipReason.INCOMPLETE, detail=_CUT) for part in (Part.CONTEXT, Part.ANSWER)]
    return replace(record, gaps=(*record.gaps, *gaps))


_CUT: Final = (
    "spans of the trace were not kept, because there were more than `assemble.max_spans_per_trace`, or one "
    "was too large: any of them may belong to this RAG call"
)
