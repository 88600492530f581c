"""The chunks of a record with their grades, which several metrics count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ragtrace.judge_steps import Grading
from ragtrace.metrics.base import MetricFinding, readings, tally
from ragtrace.model import ChunkVerdict, SkipReason, VerdictCounts, VerdictLabel
from ragtrace.ports import Steps
from ragtrace.scoring import coverage


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedChunks:
    """The result of step C, with at least one decided chunk."""

    grading: Grading
    counts: VerdictCounts

    @property
    def details(self) -> Mapping[str, float]:
        """The details that these metrics share."""
        return readings(
            coverage=coverage(self.counts),
            grades_rejected=self.grading.rejected,
            with_reference=self.grading.with_reference,
        )

    def finding(self, score: float | None, **more: float | None) -> MetricFinding:
        """Return a finding with the score and further readings."""
        return MetricFinding(
            score=score,
            explanation=_explain(self.counts),
            chunk_verdicts=self.grading.verdicts,
            details={**readings(**more), **self.details},
        )


def useful(verdicts: Iterable[ChunkVerdict]) -> tuple[bool, ...]:
    """Return whether each judged chunk is relevant, by rank."""
    judged = (verdict.label for verdict in verdicts if verdict.label is not VerdictLabel.UNJUDGED)
    return tuple(label is VerdictLabel.RELEVANT for label in judged)


async def graded_chunks(steps: Steps, *, by_answer: bool = False) -> GradedChunks | MetricFinding:
    """Return the chunks with their grades, or a finding if there is nothing to count.

    With ``by_answer``, they are graded by what the answer states in place of a reference.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    grading = await (steps.chunks_by_answer() if by_answer else steps.chunks())
    counts = VerdictCounts.of(grading.verdicts)
    if counts.judged:
        return GradedChunks(grading=grading, counts=counts)
    return MetricFinding(
        skip_reason=SkipReason.ALL_UNJUDGED,
        explanation=_explain(counts),
        chunk_verdicts=grading.verdicts,
    )


def _explain(counts: VerdictCounts) -> str:
    wrong = {
        "irrelevant": counts.irrelevant,
        "partly relevant": counts.partly_relevant,
        "unjudged": counts.unjudged,
    }
    return tally(counts.total, "chunk", "relevant", wrong)
