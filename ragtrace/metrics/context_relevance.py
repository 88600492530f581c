"""Context relevance: how relevant the retrieved chunks are on average."""

from __future__ import annotations

from ragtrace.metrics._grades import graded_chunks
from ragtrace.metrics.base import BuiltInMetric, MetricFinding
from ragtrace.model import Part, RagRecord, VerdictCounts
from ragtrace.ports import Steps
from ragtrace.scoring import mean_relevance


class ContextRelevance(BuiltInMetric):
    """Measures how relevant the retrieved chunks are to the question on average.

    score = (mean grade of the judged chunks) / 2, with the grades 2 (holds a part of what the answer needs),
    1 (background) and 0 (of no use): (2 R + P) / (2 (k - U)). Every chunk weighs the same, long or short.

    Details: ``coverage`` = (k - U) / k, ``grades_rejected``, ``with_reference``: whether the judge saw a
    reference answer.

    Source: the 0, 1, 2 scale of RAGAS' context relevance (NVIDIA), a grade a chunk instead of one for all.
    """

    name = "context_relevance"
    needs = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    async def find(self, record: RagRecord, steps: Steps) -> MetricFinding:
        """Average the grades."""
        found = await graded_chunks(steps)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(mean_relevance(found.counts))

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the score out of the grades."""
        return mean_relevance(VerdictCounts.of(finding.chunk_verdicts))
