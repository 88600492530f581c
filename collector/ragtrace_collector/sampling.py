"""Which traces are judged: a pure function of the trace id, and rules that raise it to certainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ragtrace import semconv
from ragtrace.sampling import RULE_RATIO, keeps
from ragtrace.traces.attach import Sample
from ragtrace.traces.trace import Span, Trace

__all__ = ["AlwaysRule", "Sampler"]

RULE_ALWAYS: Final = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysRule:
    """Keeps every trace in which one span matches all that the rule names."""

    service: str | None = None
    attributes: Mapping[str, str | bool | int | float] = field(default_factory=dict)

    def matches(self, trace: Trace) -> bool:
        """Say whether a span of the trace satisfies the whole rule."""
        return any(self._matches_span(span) for span in trace.spans)

    @property
    def is_about_feedback(self) -> bool:
        """Whether what it asks for comes when people have read the answer: minutes after the trace."""
        return any(key.startswith(semconv.FEEDBACK_PREFIX) for key in self.attributes)

    def _matches_span(self, span: Span) -> bool:
        if self.service is not None and span.resource.attributes.get(semconv.SERVICE_NAME) != self.service:
            return False
        return all(
            span.attributes.get(key, span.resource.attributes.get(key)) == value
            for key, value in self.attributes.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A ratio, and rules that keep a trace whatever the ratio says."""

    ratio: float
    always: tuple[AlwaysRule, ...] = ()

    def may_keep(self, trace_id: str) -> bool:
        """Say whether spans of this trace are worth storing before the whole trace is known."""
        return bool(self.always) or keeps(trace_id, self.ratio)

    @property
    def awaits_feedback(self) -> bool:
        """Whether a trace that is left out may be kept after all, when people have said what they think."""
        return any(rule.is_about_feedback for rule in self.always)

    def decide(self, trace: Trace) -> Sample | None:
        """Return how the trace came into the sample, and how probable that was; ``None`` if it did not."""
        if any(rule.matches(trace) for rule in self.always):
            return Sample(rule=RULE_ALWAYS, rate=1.0, probability=1.0)
        if keeps(trace.trace_id, self.ratio):
            return Sample(rule=RULE_RATIO, rate=self.ratio, probability=self.ratio)
        return None
