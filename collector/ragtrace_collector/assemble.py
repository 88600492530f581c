"""Assemble: spans become traces, and traces give the answers in them.

A trace is ready when its root and every named parent ended and a quiet period passed, or the deadline passed.
Only arrival times count, on a monotonic clock. The spans' own timestamps and the time of day don't matter.
"""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, NamedTuple

from ragtrace.answers.summary import feedback_in
from ragtrace.errors import CodecError
from ragtrace.model import Gap, Part, RagRecord, SkipReason
from ragtrace.ports import Clock
from ragtrace.traces.attach import record_sha256
from ragtrace.traces.extract import ExtractRules, Unread, extract_records, is_evaluator
from ragtrace.traces.otlp import SpanRef, decode, parse_request, split_by_trace
from ragtrace.traces.trace import Lineage, Trace
from ragtrace_collector.ledger import MOST_CRASHES
from ragtrace_collector.store.records import (
    Job,
    JudgedInput,
    QuarantineReason,
    StoredSpans,
    StoreUnavailable,
    trace_id_of,
)
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event, place_of

log = logging.getLogger("ragtrace.collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblePolicy:
    """How long to wait for spans. Times are nanoseconds."""

    quiet_ns: int
    """A complete trace is ready if nothing new arrived for this long."""
    deadline_ns: int
    """An incomplete trace is taken as it is if nothing new arrived for this long."""
    max_open_traces: int
    """Beyond this number, the trace that has been quiet longest is taken as it is."""
    max_spans_per_trace: int = 5_000
    """Spans beyond this number are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What can be judged now: a trace, or RAG calls of a trace that goes on."""

    trace_id: str
    calls: frozenset[str] = frozenset()
    """Spans of the whole calls. If empty, the trace is taken as it is, with all its calls."""
    is_complete: bool = False
    """Whether the root and every named parent have ended."""


class Assembly:
    """The open traces of one collector. The spans are in the store; this class knows when to read them."""

    def __init__(
        self, policy: AssemblePolicy, *, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._policy = policy
        self._monotonic_ns = monotonic_ns
        """Nanoseconds of a monotonic clock with any start."""
        self._open: dict[str, OpenTrace] = {}
        """In order of last arrival."""
        self._looks: dict[str, int] = {}
        """When to look next for whole calls, in the traces that may have some."""
        self._reopened: dict[str, None] = {}
        self._closed = ClosedTraces()
        self._in_hand: set[str] = set()
        """Traces that were taken and wait for their decision."""

    def __len__(self) -> int:
        return len(self._open)

    def follow(self, policy: AssemblePolicy) -> None:
        """Use another policy from now on, for open traces too."""
        self._policy = policy

    def owns(self, trace_id: str) -> bool:
        """Say whether the trace is open here, or was taken and waits for its decision."""
        return trace_id in self._open or trace_id in self._in_hand

    def has_room(self, trace_id: str, refs: Sequence[SpanRef]) -> bool:
        """Say whether the trace stays within its limit with these spans."""
        trace = self._open.get(trace_id)
        news = len(refs) if trace is None else sum(not trace.has_copy(ref) for ref in refs)
        known = 0 if trace is None else trace.number_of_spans
        return not news or known + news <= self._policy.max_spans_per_trace

    def has_all(self, trace_id: str, refs: Iterable[SpanRef]) -> bool:
        """Say whether all these spans came before, unchanged."""
        trace = self._open.get(trace_id)
        closed = self._closed.copies(trace_id)
        return all(ref.content_hash in closed or (trace is not None and trace.has_copy(ref)) for ref in refs)

    def add(self, trace_id: str, refs: Iterable[SpanRef], *, reopened: bool = False) -> None:
        """Add spans that are committed to the store.

        ``reopened`` says that the store holds others of this trace, which are to be recalled.
        """
        now_ns = self._monotonic_ns()
        trace = self._open.get(trace_id)
        if trace is None:
            trace = self._open[trace_id] = OpenTrace(last_arrival_ns=now_ns)
            self._await_recall(trace_id, trace, reopened)
        if trace.add(refs, now_ns):
            self._open[trace_id] = self._open.pop(trace_id)
        self._look_later(trace_id, trace, now_ns)

    def reopened(self, most: int) -> tuple[str, ...]:
        """Return the traces whose stored spans are not known here yet."""
        return tuple(self._reopened)[:most]

    def recall(self, trace_id: str, refs: Iterable[SpanRef]) -> None:
        """Add spans that came before the trace was reopened."""
        self._reopened.pop(trace_id, None)
        trace = self._open.get(trace_id)
        if trace is not None:
            trace.awaits_recall = False
            trace.add(refs, trace.last_arrival_ns)
            self._look_later(trace_id, trace, self._monotonic_ns())

    def take_ready(self, *, everything: bool = False) -> Iterator[Ready]:
        """Yield what is ready, and close the traces taken; with ``everything``, all that are complete."""
        now_ns = self._monotonic_ns()
        yield from self._take_traces(now_ns, everything=everything)
        yield from self._take_calls(now_ns)

    def put_back(self, ready: Ready) -> None:
        """Retry later, because the decision failed."""
        self._in_hand.discard(ready.trace_id)
        self.add(ready.trace_id, (), reopened=True)
        trace = self._open[ready.trace_id]
        trace.taken -= ready.calls
        self._await_recall(ready.trace_id, trace, not ready.calls)
        self._look_later(ready.trace_id, trace, self._monotonic_ns())

    def settled(self, ready: Ready) -> None:
        """Note that the decision is made."""
        self._in_hand.discard(ready.trace_id)

    def drop(self, trace_id: str) -> None:
        """Close a trace that is set aside."""
        self._in_hand.discard(trace_id)
        trace = self._open.get(trace_id)
        if trace is not None:
            self._close(trace_id, trace)

    def _take_traces(self, now_ns: int, *, everything: bool) -> Iterator[Ready]:
        overflow = len(self._open) - self._policy.max_open_traces
        for position, (trace_id, trace) in enumerate(self._oldest(now_ns, overflow, everything=everything)):
            due = trace.is_ready(now_ns, self._policy) or (everything and trace.is_complete)
            if due or position < overflow:
                self._close(trace_id, trace)
                self._in_hand.add(trace_id)
                yield Ready(trace_id=trace_id, is_complete=trace.is_complete)

    def _oldest(self, now_ns: int, at_least: int, *, everything: bool) -> Sequence[tuple[str, OpenTrace]]:
        """Return the traces that may be ready. They are in order of arrival, so no later one is ready."""
        wait_ns = min(self._policy.quiet_ns, self._policy.deadline_ns)
        last_ns = now_ns if everything else now_ns - wait_ns
        oldest: list[tuple[str, OpenTrace]] = []
        for trace_id, trace in self._open.items():
            if trace.last_arrival_ns > last_ns and len(oldest) >= at_least:
                break
            oldest.append((trace_id, trace))
        return oldest

    def _close(self, trace_id: str, trace: OpenTrace) -> None:
        for by_trace in (self._open, self._looks, self._reopened):
            by_trace.pop(trace_id, None)
        self._closed.remember(trace_id, trace.copies, most_traces=self._policy.max_open_traces)

    def _take_calls(self, now_ns: int) -> Iterator[Ready]:
        for trace_id in [each for each, look_ns in self._looks.items() if look_ns <= now_ns]:
            del self._looks[trace_id]
            trace = self._open[trace_id]
            calls = trace.take_calls(now_ns, self._policy)
            self._look_later(trace_id, trace, now_ns)
            if calls:
                yield Ready(trace_id=trace_id, calls=calls)

    def _await_recall(self, trace_id: str, trace: OpenTrace, reopened: bool) -> None:
        if reopened:
            trace.awaits_recall = True
            self._reopened[trace_id] = None

    def _look_later(self, trace_id: str, trace: OpenTrace, now_ns: int) -> None:
        # Each successful look reads the whole trace, so larger traces are looked at less often.
        if trace.has_calls_to_take and not trace.awaits_recall and trace_id not in self._looks:
            periods = 1 + trace.number_of_spans // _SPANS_A_PERIOD
            self._looks[trace_id] = now_ns + periods * self._policy.quiet_ns


_SPANS_A_PERIOD: Final = 500
"""Measured: reading a trace of ten times as many spans takes 1.7 s of CPU."""


class ClosedTraces:
    """The span hashes of the traces taken last, so that a repeated span reopens none of them.

    An array takes eight bytes a span; a set would take a hundred.
    """

    def __init__(self, *, most_spans: int = 1_000_000) -> None:
        self._most_spans = most_spans
        self._copies: dict[str, array[int]] = {}
        self._spans = 0

    def copies(self, trace_id: str) -> frozenset[int]:
        """Return the hashes of a trace's spans, as far as they are remembered."""
        return frozenset(self._copies.get(trace_id, ()))

    def remember(self, trace_id: str, copies: Collection[int], *, most_traces: int) -> None:
        """Remember a trace, and forget those taken first."""
        self._forget(trace_id)
        self._copies[trace_id] = array("q", copies)
        self._spans += len(copies)
        while len(self._copies) > most_traces or self._spans > self._most_spans:
            self._forget(next(iter(self._copies)))

    def _forget(self, trace_id: str) -> None:
        self._spans -= len(self._copies.pop(trace_id, ()))


@dataclass(slots=True)
class OpenTrace:
    """A trace that more spans may join."""

    last_arrival_ns: int
    """When the last new span came."""
    awaits_recall: bool = False
    taken: set[str] = field(default_factory=set)
    """RAG calls that were taken and that no span joined since."""
    _parents: dict[str, str | None] = field(default_factory=dict)
    """Of each span that came, except those beside."""
    _beside: set[str] = field(default_factory=set)
    """Feedback, and log records: the trace can be complete without them."""
    _copies: set[int] = field(default_factory=set)
    """Hashes of all spans that came, changed copies of one span included."""
    _missing: dict[str, int] = field(default_factory=dict)
    """Missing parents, and when they were first named."""
    _calls: dict[str, int] = field(default_factory=dict)
    """RAG calls that ended, and when a span last joined them, as of the last look."""
    _joined: dict[str, int] = field(default_factory=dict)
    """Spans that came since the last look, and when."""
    has_root: bool = False
    """Whether a span without a parent came."""

    @property
    def is_complete(self) -> bool:
        """Whether the root and every named parent have ended."""
        return self.has_root and not self._missing

    @property
    def missing_parents(self) -> tuple[str, ...]:
        """Spans that were named as parents and have not come."""
        return tuple(self._missing)

    @property
    def number_of_spans(self) -> int:
        """Spans that came, counted once, or once a copy if copies differ."""
        return max(len(self._parents) + len(self._beside), len(self._copies))

    @property
    def copies(self) -> frozenset[int]:
        """Hashes of all spans that came."""
        return frozenset(self._copies)

    @property
    def has_calls_to_take(self) -> bool:
        """Whether a RAG call that ended was not taken yet, or may have been joined since."""
        return len(self.taken) < len(self._calls) or bool(self._calls and self._joined)

    def has(self, ref: SpanRef) -> bool:
        """Say whether the span came before."""
        return ref.span_id in self._parents or ref.span_id in self._beside

    def has_copy(self, ref: SpanRef) -> bool:
        """Say whether the span came before, unchanged."""
        return self.has(ref) and (ref.content_hash is None or ref.content_hash in self._copies)

    def add(self, refs: Iterable[SpanRef], arrived_ns: int) -> bool:
        """Add spans that arrived; say whether any is new."""
        arrived = tuple(refs)
        self._copies.update(ref.content_hash for ref in arrived if ref.content_hash is not None)
        news = {ref.span_id: ref for ref in arrived if not self.has(ref)}
        for ref in news.values():
            if ref.is_feedback or ref.of_log:
                self._beside.add(ref.span_id)
            else:
                self._join(ref, arrived_ns)
        if news:
            self.last_arrival_ns = max(self.last_arrival_ns, arrived_ns)
        return bool(news)

    def is_ready(self, now_ns: int, policy: AssemblePolicy) -> bool:
        """Say whether the trace can be judged now."""
        wait_ns = policy.quiet_ns if self.is_complete else policy.deadline_ns
        return not self.awaits_recall and now_ns - self.last_arrival_ns >= wait_ns

    def take_calls(self, now_ns: int, policy: AssemblePolicy) -> frozenset[str]:
        """Return the RAG calls that are whole and quiet although the trace goes on, each once.

        A missing parent may belong to a call, unless it is above a call. So parents named before the call
        was quiet must come first, or the deadline must pass.
        """
        self._note_joined()
        waited_ns = {call: now_ns - ns for call, ns in self._calls.items() if call not in self.taken}
        quiet = [call for call, ns in waited_ns.items() if ns >= policy.quiet_ns]
        if self.is_complete or not quiet:
            return frozenset()
        lineage = Lineage(self._parents)
        above = lineage.all_above(self._calls)
        longest_ns = max(
            (now_ns - ns for parent, ns in self._missing.items() if parent not in above), default=-1
        )
        nested = lineage.nearest_above(quiet, self._calls.keys()).keys() & set(quiet)
        whole = frozenset(
            call
            for call in quiet
            if call not in nested
            and (waited_ns[call] - policy.quiet_ns > longest_ns or waited_ns[call] >= policy.deadline_ns)
        )
        self.taken |= whole | nested
        return whole

    def _join(self, ref: SpanRef, arrived_ns: int) -> None:
        self._parents[ref.span_id] = ref.parent_span_id
        self._missing.pop(ref.span_id, None)
        if ref.parent_span_id is None:
            self.has_root = True
        elif ref.parent_span_id not in self._parents:
            self._missing.setdefault(ref.parent_span_id, arrived_ns)
        if ref.is_call:
            self._calls[ref.span_id] = arrived_ns
        if self._calls:  # a call that comes after its descendants was last joined when it came
            self._joined[ref.span_id] = arrived_ns

    def _note_joined(self) -> None:
        """Find the calls that spans joined since the last look.

        It starts with the latest span: where ancestor lines meet, the latest sets the time of all above. So
        each span is visited once a look, whatever the tree.
        """
        walked: set[str] = set()
        for joined, arrived_ns in sorted(self._joined.items(), key=itemgetter(1), reverse=True):
            above: str | None = joined
            while above is not None and above not in walked:
                walked.add(above)
                if above in self._calls:
                    self._calls[above] = max(arrived_ns, self._calls[above])
                    self.taken.discard(above)
                above = self._parents.get(above)
        self._joined.clear()


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


@dataclass(slots=True, kw_only=True)
class AnswerReader:
    """Reads stored traces, large ones in a thread, because they take seconds and senders must not wait."""

    store: Store
    counters: Counters
    _recent: dict[str, _Kept] = field(default_factory=dict)
    """The last traces read: their answers are judged soon, and each needs the whole trace."""
    _recent_bytes: int = 0
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
        if kept and kept.rules == rules:
            stored = kept.answers.stored  # the store keeps a trace with such an answer
            if (stored.slices, stored.is_cut) == (job.slices, job.is_cut):
                return kept.answers
        return await self.read(job.trace_id, rules)

    async def _assembled(self, trace_id: str, stored: StoredSpans, rules: ExtractRules) -> TraceAnswers:
        kept = self._recent.get(trace_id)
        payloads, size = hash(stored.payloads), sum(map(len, stored.payloads))
        if kept and kept.rules == rules and kept.payloads == payloads:
            return replace(kept.answers, stored=stored)
        if size <= _SMALL_BYTES:  # faster than handing it to a thread
            answers = _answers(trace_id, stored, rules)
        else:
            answers = await asyncio.to_thread(_answers, trace_id, stored, rules)
        if kept:
            self._recent_bytes -= self._recent.pop(trace_id).size
        without_payloads = replace(answers, stored=stored._replace(payloads=()))
        self._recent[trace_id] = _Kept(without_payloads, rules, payloads, size)
        self._recent_bytes += size
        while self._recent_bytes > _RECENT_BYTES and len(self._recent) > 1:
            self._recent_bytes -= self._recent.pop(next(iter(self._recent))).size
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


class QuarantineCheck(NamedTuple):
    """Which traces to read, and how."""

    together: Collection[str]
    alone: Collection[str]
    """A process crashed while it read these and others."""
    set_aside: Collection[str]
    """Not to be read."""
    elsewhere: Collection[str]
    """Another process has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Notes in the store which traces are about to be read, and sets aside those that did harm."""

    store: Store
    counters: Counters
    clock: Clock

    async def begin(self, trace_ids: Collection[str]) -> QuarantineCheck:
        """Note that traces are being read, until their decision or ``end``.

        A trace is set aside if so many processes crashed while they read it.

        Raises:
            StoreUnavailable: that cannot be stored.
        """
        found = await self.store.look(trace_ids)
        known = {trace_id: each for trace_id, each in found.items() if each}
        poison = {
            trace_id: each.poison or QuarantineReason.CRASHES
            for trace_id, each in known.items()
            if each.poison or each.crashes >= MOST_CRASHES
        }
        for trace_id, why in poison.items():
            await self.set_aside(trace_id, why, again=bool(known[trace_id].poison))
        return QuarantineCheck(
            together=[trace_id for trace_id in trace_ids if trace_id not in found],
            alone=[trace_id for trace_id in known if trace_id not in poison],
            set_aside=list(poison),
            elsewhere=found.keys() - known.keys(),
        )

    async def end(self, trace_ids: Collection[str]) -> None:
        """Note that traces were read. If that cannot be stored, it counts as a crash; a few are allowed."""
        with suppress(StoreUnavailable):
            await self.store.end_look(trace_ids)

    async def set_aside(self, trace_id: str, why: str, *, again: bool = False) -> None:
        """Never read a trace again, in this process or a later one."""
        ended = await self.store.set_aside(trace_id, poison=why, now_ns=self.clock.now_ns())
        self.counters.add(Counts.ANSWERS_FAILED, ended)
        if again:  # spans joined it, and it was logged before
            return
        self.counters.add(Counts.TRACES_POISON)
        log.error(
            "trace %s is set aside as poison (%s): `ragtrace why` says more",
            trace_id,
            why,
            extra=event("trace_set_aside", trace_id=trace_id, reason=why),
        )


@dataclass(slots=True, kw_only=True)
class Sweeper:
    """Compares the undecided traces of the store with the open ones."""

    store: Store
    assembly: Assembly
    counters: Counters
    _unowned: frozenset[str] = frozenset()
    """As of the last turn, because a trace is committed a moment before it is announced."""

    async def step(self) -> bool:
        """Reopen the traces that no stage has had since the last turn."""
        undecided = await self.store.undecided()
        unowned = frozenset(trace_id for trace_id in undecided if not self.assembly.owns(trace_id))
        lost = unowned & self._unowned
        self._unowned = unowned - lost
        for trace_id in lost:
            self.assembly.add(trace_id, (), reopened=True)
        if lost:
            self.counters.add(Counts.TRACES_SWEPT, len(lost))
            log.warning(
                "%d stored traces that no stage had are assembled now",
                len(lost),
                extra=event("traces_swept", number=len(lost)),
            )
        return False
