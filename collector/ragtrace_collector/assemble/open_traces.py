"""When a trace is ready: root and every named parent ended and a quiet period passed, or the deadline passed.

Only arrival times count, on a monotonic clock. The spans' own timestamps and the time of day don't matter.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final

from ragtrace.traces.otlp import SpanRef
from ragtrace.traces.trace import Lineage


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
        self._next_looks: list[tuple[int, str]] = []
        """A heap of these looks, and of some that were cancelled since."""
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
        for trace_id in self._due_looks(now_ns):
            trace = self._open[trace_id]
            calls = trace.take_calls(now_ns, self._policy)
            self._look_later(trace_id, trace, now_ns)
            if calls:
                yield Ready(trace_id=trace_id, calls=calls)

    def _due_looks(self, now_ns: int) -> Sequence[str]:
        due: list[str] = []
        while self._next_looks and self._next_looks[0][0] <= now_ns:
            look_ns, trace_id = heappop(self._next_looks)
            if self._looks.get(trace_id) == look_ns:
                del self._looks[trace_id]
                due.append(trace_id)
        return due

    def _await_recall(self, trace_id: str, trace: OpenTrace, reopened: bool) -> None:
        if reopened:
            trace.awaits_recall = True
            self._reopened[trace_id] = None

    def _look_later(self, trace_id: str, trace: OpenTrace, now_ns: int) -> None:
        # Each successful look reads the whole trace, so larger traces are looked at less often.
        if trace.has_calls_to_take and not trace.awaits_recall and trace_id not in self._looks:
            periods = 1 + trace.number_of_spans // _SPANS_A_PERIOD
            self._looks[trace_id] = now_ns + periods * self._policy.quiet_ns
            heappush(self._next_looks, (self._looks[trace_id], trace_id))


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
    _has_root: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the root and every named parent have ended."""
        return self._has_root and not self._missing

    @property
    def has_root(self) -> bool:
        """Whether a span without a parent came."""
        return self._has_root

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
            self._has_root = True
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
