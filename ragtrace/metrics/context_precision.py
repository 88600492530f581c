"""Context precision: are the relevant chunks ranked first?"""

from __future__ import annotations

from ragtrace.metrics._grades import graded_chunks, useful
from ragtrace.metrics.base import BuiltInMetric, MetricFinding
from ragtrace.model import Part, RagRecord
from ragtrace.ports import Steps
from ragtrace.scoring import average_precision, relevant_share


class ContextPrecision(BuiltInMetric):
    """Measures whether the relevant chunks rank before the others: average precision over the ranks.

    score = (sum of P@k over the ranks k of relevant chunks) / (number of relevant chunks), where P@k is the
    share of relevant chunks among the first k; 0 if chunks were judged and none is relevant. Relevant
    means grade 2 of 0, 1, 2. Unjudged chunks are left out of the ranking and reported. If the record has a
    reference answer, the judge sees it and grades what the reference needs (``with_reference`` = 1).

    Details: ``precision``: the plain share of relevant chunks, ``coverage``: share of chunks that were
    judged, ``grades_rejected``, ``with_reference``.

    Source: average precision as in TREC; RAGAS' and DeepEval's context precision, without the 1e-10.
    """

    name = "context_precision"
    needs = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    async def find(self, record: RagRecord, steps: Steps) -> MetricFinding:
        """Rank the relevant chunks."""
        found = await graded_chunks(steps)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(
            average_precision(useful(found.grading.verdicts)), precision=relevant_share(found.counts)
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the grades."""
        return average_precision(useful(finding.chunk_verdicts))
