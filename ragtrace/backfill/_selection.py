"""Which stored answers are judged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ragtrace.ports import TraceQuery
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.extract import ExtractRules


class SpanId(NamedTuple):
    """Names a span among all."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records of a source are judged."""

    trace_ids: tuple[str, ...] = ()
    """Only these traces."""
    query: TraceQuery | None = None
    """Only what it finds. Without it and without trace ids: every trace of the source, which only files can
    give."""
    sampling: SamplingPlan = field(default_factory=SamplingPlan)
    """The share of answers, and rules that raise it; chosen as the collector chooses."""
    limit: int | None = None
    """Stop after so many records that were not judged before."""
    only_unscored: bool = False
    """Leave out what any evaluator of ragtrace has judged; otherwise only what this one has."""
    done: Collection[SpanId] = frozenset()
    """Spans that the destination has already, as `span_ids` finds them."""
    rules: ExtractRules = field(default_factory=ExtractRules)
    """How RAG calls are read: attributes of the application's own, and where context may come from."""
