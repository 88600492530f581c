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
    """A record and all that was found out about it."""

    record: RagRecord
    evaluation: Evaluation
    sample: Sample | None = None
    """How it was chosen; ``None`` where nothing was left out."""
    carrier_span_id: str | None = None
    """The span that tells of it in its trace; ``None`` where there is none."""
    cost_usd: float | None = None
    """What judging it cost, in US dollars; ``None`` where that is not known."""

    @property
    def service(self) -> str | None:
        """The service that answered."""
        target = self.record.target
        name = target.resource.get(SERVICE_NAME) if target else None
        return name if isinstance(name, str) else None

    @property
    def probability(self) -> float | None:
        """The probability with which such an answer is judged; ``None`` where nobody can know it."""
        return self.sample.probability if self.sample else 1.0

    @property
    def cluster(self) -> str:
        """What comes into a sample together: the answers of a trace."""
        return self.record.target.trace_id if self.record.target else self.record.id


class Status(StrEnum):
    """What became of an answer as a whole."""

    JUDGED = "judged"
    """One metric scored, at least."""
    FAILED = "failed"
    """No metric scored, and the judge failed on one."""
    INELIGIBLE = "ineligible"
    """There was nothing to judge."""


class AnswerOutcome(NamedTuple):
    """What became of an answer, and why it was not judged."""

    status: Status
    reason: str | None


def outcome_of(evaluation: Evaluation) -> AnswerOutcome:
    """Say what became of an answer: judged where one metric scored, else failed, else ineligible."""
    if any(result.score is not None for result in evaluation.results):
        return AnswerOutcome(Status.JUDGED, None)
    if evaluation.failures:
        return AnswerOutcome(Status.FAILED, evaluation.failures[0].error_type)
    return AnswerOutcome(Status.INELIGIBLE, str(evaluation.results[0].skip_reason))
