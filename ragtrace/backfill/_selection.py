"""The selection of stored answers to judge."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ragtrace.ports import TraceQuery
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.extract import ExtractRules


class SpanId(NamedTuple):
    """The globally unique id of a span."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records of a source are judged."""

    trace_ids: tuple[str, ...] = ()
    """Only these traces."""
    query: TraceQuery | None = None
    """Only traces that it finds. Without a query and trace ids, every trace of the source; only files support
    that."""
    sampling: SamplingPlan = field(default_factory=SamplingPlan)
    """The share of answers and its rules; the choice is the same as the collector's."""
    limit: int | None = None
    """Stop after this many records that were not judged before."""
    only_unscored: bool = False
    """Skip answers that any ragtrace evaluator has judged; otherwise only those that this one has."""
    done: Collection[SpanId] = frozenset()
    """Spans that the destination already has, from `span_ids`."""
    rules: ExtractRules = field(default_factory=ExtractRules)
    """How RAG calls are extracted: custom attributes, and sources of context."""
