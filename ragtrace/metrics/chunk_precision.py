"""Chunk precision: the share of the retrieved chunks that are relevant, in any order."""

from __future__ import annotations

from ragtrace.metrics._grades import graded_chunks
from ragtrace.metrics.base import BuiltInMetric, MetricFinding
from ragtrace.model import Part, RagRecord, VerdictCounts
from ragtrace.ports import Steps
from ragtrace.scoring import relevant_share, serving_share


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

    async def find(self, record: RagRecord, steps: Steps) -> MetricFinding:
        """Count the relevant chunks."""
        found = await graded_chunks(steps)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(relevant_share(found.counts), lenient=serving_share(found.counts))

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the grades."""
        return relevant_share(VerdictCounts.of(finding.chunk_verdicts))
