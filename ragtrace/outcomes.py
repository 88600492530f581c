"""Evaluated answers: a record with its evaluation, and its outcome in one word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ragtrace.model import Evaluation, RagRecord
from ragtrace.semconv import SERVICE_NAME
from ragtrace.traces.attach import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """A record with its evaluation."""

    record: RagRecord
    evaluation: Evaluation
    sample: Sample | None = None
    """How it was sampled; ``None`` without sampling."""
    carrier_span_id: str | None = None
    """The carrier span in its trace; ``None`` if there is none."""
    cost_usd: float | None = None
    """The cost of judging it in US dollars; ``None`` if unknown."""

    @property
    def service(self) -> str | None:
        """The service that answered."""
        target = self.record.target
        name = target.resource.get(SERVICE_NAME) if target else None
        return name if isinstance(name, str) else None

    @property
    def probability(self) -> float | None:
        """The answer's sampling probability; ``None`` if unknown."""
        return self.sample.probability if self.sample else 1.0

    @property
    def cluster(self) -> str:
        """The sampling cluster: the trace."""
        return self.record.target.trace_id if self.record.target else self.record.id


class Status(StrEnum):
    """The overall outcome of an answer."""

    JUDGED = "judged"
    """At least one metric has a score."""
    FAILED = "failed"
    """No metric has a score, and the judge failed on one."""
    INELIGIBLE = "ineligible"
    """There was nothing to judge."""


class AnswerOutcome(NamedTuple):
    """The outcome of an answer, and why it was not judged."""

    status: Status
    reason: str | None


def outcome_of(evaluation: Evaluation) -> AnswerOutcome:
    """Return the outcome of an answer: judged if a metric scored, else failed, else ineligible."""
    if any(result.score is not None for result in evaluation.results):
        return AnswerOutcome(Status.JUDGED, None)
    if evaluation.failures:
        return AnswerOutcome(Status.FAILED, evaluation.failures[0].error_type)
    return AnswerOutcome(Status.INELIGIBLE, str(evaluation.results[0].skip_reason))
