"""Answer relevance: the share of the answer's statements that help to answer the question."""

from __future__ import annotations

from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings, tally
from ragtrace.metrics.faithfulness import nothing_stated
from ragtrace.metrics.session import StepSession
from ragtrace.model import Part, RagRecord, SkipReason, VerdictCounts, VerdictLabel
from ragtrace.scoring import coverage, relevant_share, serving_share


class AnswerRelevance(BuiltInMetric):
    """Measures the share of an answer's statements that answer the question, or help to.

    score = (D + B) / (n - U): of n statements of every kind, D answer the question directly, B support those,
    I are irrelevant and U are unjudged. Whether they are true does not matter.

    Details: ``direct`` = D / (n - U), ``coverage`` = (n - U) / n, ``sentence_coverage``: share of the
    answer's sentences that a statement was drawn from.

    Source: DeepEval's answer relevancy, (yes + borderline) / verdicts, without its 1 for an answer that
    states nothing. RAGAS' metric of this name is ``question_similarity``.
    """

    name = "answer_relevance"
    needs = (Part.QUESTION, Part.ANSWER)
    uses = ("extract", "relevance")
    good, wrong = VerdictLabel.RELEVANT, VerdictLabel.IRRELEVANT

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the statements that serve the question."""
        extraction = await steps.extract()
        if extraction.refusal or not extraction.statements:
            return nothing_stated(extraction)
        verdicts = await steps.relevance()
        counts = VerdictCounts.of(verdicts)
        if not counts.judged:
            return MetricFinding(
                skip_reason=SkipReason.ALL_UNJUDGED, explanation=_explain(counts), verdicts=verdicts
            )
        return MetricFinding(
            score=serving_share(counts),
            explanation=_explain(counts),
            verdicts=verdicts,
            details=readings(
                direct=relevant_share(counts),
                coverage=coverage(counts),
                sentence_coverage=extraction.sentence_coverage,
            ),
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the statements that serve the question."""
        return serving_share(VerdictCounts.of(finding.verdicts))


def _explain(counts: VerdictCounts) -> str:
    wrong = {"irrelevant": counts.irrelevant, "unjudged": counts.unjudged}
    return tally(counts.total, "statement", "relevant", wrong)
