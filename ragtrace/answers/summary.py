"""One judged answer without content: what an index keeps, and what lists and charts are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ragtrace.model import Direction, Label, VerdictCounts


class AnswerKey(NamedTuple):
    """Which answer: the judged span of a trace, of a tenant."""

    trace_id: str
    """32 lower-case hex digits."""
    span_id: str
    """16 lower-case hex digits."""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSummary:
    """The outcome of one metric."""

    name: str
    """Its name in attribute keys: ``faithfulness``; ``faithfulness.ragas`` if the metric ran twice."""
    label: Label
    score: float | None
    """In [0, 1]; ``None`` if it failed or was skipped."""
    direction: Direction = Direction.HIGHER_IS_BETTER


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSummary:
    """One evaluation of an answer, as its carrier tells it. It holds no text under judgment."""

    key: AnswerKey
    carrier_span_id: str
    supersedes: str = ""
    """The span id of the carrier that this one replaces."""
    time_ns: int
    """When the judged span began; Unix time in nanoseconds, as all times here."""
    judged_ns: int
    service: str = ""
    model: str = ""
    prompt_version: str = ""
    session: str = ""
    """``session.id``, or else ``gen_ai.conversation.id``."""
    label: Label
    """Of the answer: one failing metric fails it."""
    reason: str = ""
    """Why it was skipped, or the type of the first error."""
    metrics: tuple[MetricSummary, ...] = ()
    claims: VerdictCounts = field(default_factory=VerdictCounts)
    """Of the claims of the answer, each once."""
    chunks: VerdictCounts = field(default_factory=VerdictCounts)
    """Of the relevance of the chunks."""
    blame: str = ""
    """``ragtrace.diagnosis``: which part of the call failed."""
    judge: str = ""
    """``provider:model``."""
    evaluator_version: str = ""
    rule: str = ""
    """Of sampling."""
    probability: float | None = None
    """The sampling probability; ``None`` if unknown, and then averages leave the answer out."""
    cost_usd: float | None = None
    feedback: str = ""
    """``up`` or ``down``."""

    def metric(self, name: str) -> MetricSummary | None:
        """Return the outcome of a metric, if it ran."""
        return next((metric for metric in self.metrics if metric.name == name), None)
