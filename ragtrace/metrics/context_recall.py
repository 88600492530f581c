"""Context recall: the share of a reference answer that the retrieved chunks support."""

from __future__ import annotations

from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings
from ragtrace.metrics.faithfulness import explain_support
from ragtrace.metrics.session import StepSession
from ragtrace.model import Part, RagRecord, SkipReason, VerdictCounts
from ragtrace.scoring import coverage, lower_bound, strict_faithfulness


class ContextRecall(BuiltInMetric):
    """Measures the share of a reference answer's sentences that the chunks support.

    score = S / (n - U): of the n sentences of the reference, S are supported and U unjudged. Code
    splits and numbers the sentences, so the judge cannot change the denominator.

    Details: ``lower_bound`` = S / n, ``coverage`` = (n - U) / n, ``contradicted_share`` = C / (n - U),
    ``verdicts_rejected`` and, with canary claims, ``sentinels_passed``.

    Source: RAGAS' context recall, in which the judge splits and judges in one step.
    """

    name = "context_recall"
    needs = (Part.CONTEXT, Part.REFERENCE)
    uses = ("recall",)

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the supported sentences of the reference."""
        found = await steps.recall()
        counts = VerdictCounts.of(found.verdicts)
        if not counts.judged:
            reason = SkipReason.ALL_UNJUDGED if counts.total else SkipReason.NO_CLAIMS
            said = (
                explain_support(found.verdicts, "sentence")
                if counts.total
                else "the reference holds no sentence"
            )
            return MetricFinding(skip_reason=reason, explanation=said, verdicts=found.verdicts)
        return MetricFinding(
            score=strict_faithfulness(counts),
            explanation=f"of the reference: {explain_support(found.verdicts, 'sentence')}",
            verdicts=found.verdicts,
            details=readings(
                lower_bound=lower_bound(counts),
                coverage=coverage(counts),
                contradicted_share=counts.contradicted / counts.judged,
                verdicts_rejected=found.rejected,
                canaries_passed=found.canaries_passed or None,
            ),
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the supported sentences of the reference."""
        return strict_faithfulness(VerdictCounts.of(finding.verdicts))
