"""When a trace is ready: root and every seen parent ended and a quiet period passed, or the deadline came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ragtrace.traces.otlp import SpanRef

__all__ = ["AssemblePolicy", "Assembly", "OpenTrace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblePolicy:
    """How long spans are waited for. Times are nanoseconds."""

    quiet_ns: int
    """A complete trace is ready when nothing arrived for this long."""
    deadline_ns: int
    """An incomplete trace is taken as it is when nothing arrived for this long."""
    max_open_traces: int
    """Beyond this many, the trace that has been quiet for longest is taken as it is."""


@dataclass(slots=True)
class OpenTrace:
    """A trace that more spans may join."""

    last_arrival_ns: int
    span_ids: set[str] = field(default_factory=set)
    parent_ids: set[str] = field(default_factory=set)
    has_root: bool = False
    is_complete: bool = False
    """Whether the root and every parent that was named have ended."""
    reopened: bool = False
    """Settled before: what completes it is in the store already, so only quiet is waited for."""

    def add(self, refs: Iterable[SpanRef], arrived_ns: int) -> None:
        """Take note of spans that arrived."""
        self.last_arrival_ns = max(self.last_arrival_ns, arrived_ns)
        for ref in refs:
            self.span_ids.add(ref.span_id)
            if ref.is_feedback:
                continue
            if ref.parent_span_id is None:
                self.has_root = True
            else:
                self.parent_ids.add(ref.parent_span_id)
        self.is_complete = self.reopened or (self.has_root and self.parent_ids <= self.span_ids)

    def is_ready(self, now_ns: int, policy: AssemblePolicy) -> bool:
        """Say whether the trace can be judged now."""
        patience = policy.quiet_ns if self.is_complete else policy.deadline_ns
        return now_ns - self.last_arrival_ns >= patience


class Assembly:
    """The open traces of one collector. The spans stand in the store; this knows when to read them."""

    def __init__(self, policy: AssemblePolicy) -> None:
        self._policy = policy
        self._open: dict[str, OpenTrace] = {}

    def __len__(self) -> int:
        return len(self._open)

    def number_of_spans(self, trace_id: str) -> int:
        """Return how many spans of an open trace were seen."""
        trace = self._open.get(trace_id)
        return len(trace.span_ids) if trace else 0

    def add(self, trace_id: str, refs: Iterable[SpanRef], *, arrived_ns: int, reopened: bool = False) -> None:
        """Take note of spans that are committed to the store."""
        # Popped and set again, so that the dict stays in order of last arrival.
        trace = self._open.pop(trace_id, None) or OpenTrace(last_arrival_ns=arrived_ns)
        trace.reopened = trace.reopened or reopened
        trace.add(refs, arrived_ns)
        self._open[trace_id] = trace

    def take_ready(self, now_ns: int, *, everything: bool = False) -> Iterator[str]:
        """Yield and forget the ids of traces that are ready; with ``everything``, all complete ones too."""
        overflow = len(self._open) - self._policy.max_open_traces
        patience_ns = min(self._policy.quiet_ns, self._policy.deadline_ns)
        for position, (trace_id, trace) in enumerate(list(self._open.items())):
            if now_ns - trace.last_arrival_ns < patience_ns and position >= overflow and not everything:
                return  # the traces are in order of last arrival: nothing behind this one is ready
            due = trace.is_ready(now_ns, self._policy) or (everything and trace.is_complete)
            if due or position < overflow:
                del self._open[trace_id]
                yield trace_id
