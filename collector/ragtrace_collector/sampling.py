"""Which traces are judged: a pure function of the trace id, and rules that raise it to certainty."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ragtrace import semconv
from ragtrace.traces.attach import Sample
from ragtrace.traces.trace import Span, Trace

__all__ = ["AlwaysRule", "Sampler", "keeps"]

RULE_RATIO: Final = "ratio"
RULE_ALWAYS: Final = "always"
_RESOLUTION_BITS: Final = 53  # every fraction of this many bits is exact in a double


def keeps(trace_id: str, ratio: float) -> bool:
    """Say whether a ratio in [0, 1] keeps the trace.

    The same at every replica and in back-fill, and nested: what a ratio keeps, every higher ratio keeps.
    The id is hashed, so that the choice is independent of a head sampler in the application that compares
    the id's own bits (OpenTelemetry's ``TraceIdRatioBased``).
    """
    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") >> (64 - _RESOLUTION_BITS)
    return position < ratio * 2**_RESOLUTION_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysRule:
    """Keeps every trace in which one span matches all that the rule names."""

    service: str | None = None
    attributes: Mapping[str, str | bool | int | float] = field(default_factory=dict)

    def matches(self, trace: Trace) -> bool:
        """Say whether a span of the trace satisfies the whole rule."""
        return any(self._matches_span(span) for span in trace.spans)

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

    def decide(self, trace: Trace) -> Sample | None:
        """Return how the trace came into the sample, and how probable that was; ``None`` if it did not."""
        if any(rule.matches(trace) for rule in self.always):
            return Sample(rule=RULE_ALWAYS, rate=1.0, probability=1.0)
        if keeps(trace.trace_id, self.ratio):
            return Sample(rule=RULE_RATIO, rate=self.ratio, probability=self.ratio)
        return None
