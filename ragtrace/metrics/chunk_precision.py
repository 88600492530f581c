"""Chunk precision: the share of the retrieved chunks that are relevant, in any order.

Context precision and context relevance count the same grades: they share `graded_chunks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ragtrace.judge_steps import Grading
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings, tally
from ragtrace.metrics.session import StepSession
from ragtrace.model import ChunkVerdict, Part, RagRecord, SkipReason, VerdictCounts, VerdictLabel
from ragtrace.scoring import coverage, relevant_share, serving_share


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


async def graded_chunks(steps: StepSession, *, by_answer: bool = False) -> GradedChunks | MetricFinding:
    """Return the chunks with their grades, or a finding if there is nothing to count.

    With ``by_answer``, they are graded by what the answer states in place of a reference.
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


class ChunkPrecision(BuiltInMetric):
    """Measures the share of the retrieved chunks that are relevant to the question, in any order.

    score = R / (k - U): of k chunks, R hold a part of what the answer needs (grade 2), P are background
    (grade 1), I are of no use (grade 0) and U unjudged.

    Details: ``lenient`` = (R + P) / (k - U), ``coverage`` = (k - U) / k, ``grades_rejected``,
    ``with_reference``: whether the judge saw a reference answer.

    Source: rag_evals' chunk precision; grade 1 counts as no, as in TREC's deep learning track.
    """

    name = "chunk_precision"
    needs = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the relevant chunks."""
        found = await graded_chunks(steps)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(relevant_share(found.counts), lenient=serving_share(found.counts))

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the grades."""
        return relevant_share(VerdictCounts.of(finding.chunk_verdicts))
