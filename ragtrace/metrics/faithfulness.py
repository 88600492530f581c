"""Faithfulness: what share of the answer's claims stands on the retrieved chunks.

The answer is parted into claims, each claim is looked up in the chunks, and the score is counted from the
verdicts: supported / judged. What the chunks do not mention is not faithful; what could not be judged is not
counted, and said. Whether a claim is *true* is another question, and not asked here.
"""

from __future__ import annotations

from ragtrace.metrics._claims import ClaimMetric, explain_support, judged_claims
from ragtrace.metrics.base import MetricFinding, readings
from ragtrace.metrics.steps import Steps
from ragtrace.model import Part, RagRecord, VerdictCounts
from ragtrace.scoring import coverage, lenient_faithfulness, lower_bound, strict_faithfulness


class Faithfulness(ClaimMetric):
    """Measures the share of an answer's claims that its context supports.

    score = S / (n - U), with S supported, C contradicted, N unsupported and U unjudged of n claims.

    Passes where no claim is contradicted or unsupported and at least half of them are decided. Where nothing
    wrong was found and fewer are, or where the judge left a verdict out that would tell, there is no score
    (``undecided``). ``pass_when`` takes other rules.

    Details: ``lenient`` = (S + N) / (n - U), ``lower_bound`` = S / n, ``coverage`` = (n - U) / n,
    ``sentence_coverage``: share of the answer's sentences that a statement was drawn from, and the numbers
    ``claims_rejected``, ``verdicts_rejected``, ``quotes_unverified`` and, where claims were planted,
    ``sentinels_passed``.

    Source: RAGAS' faithfulness (Es et al. 2023), with claims under ids that code gave out.
    """

    name = "faithfulness"
    needs = (Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "verify")

    async def find(self, record: RagRecord, steps: Steps) -> MetricFinding:
        """Count the supported claims."""
        found = await judged_claims(steps)
        if isinstance(found, MetricFinding):
            return found
        counts = found.counts
        return MetricFinding(
            score=strict_faithfulness(counts),
            explanation=explain_support(counts) + found.caution,
            verdicts=found.verification.verdicts,
            details=readings(
                lenient=lenient_faithfulness(counts),
                lower_bound=lower_bound(counts),
                coverage=coverage(counts),
                sentence_coverage=found.extraction.sentence_coverage,
                claims_rejected=found.extraction.rejected,
                verdicts_rejected=found.verification.rejected,
                quotes_unverified=found.verification.quotes_unverified,
                canaries_passed=found.verification.canaries_passed or None,
            ),
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the supported claims."""
        return strict_faithfulness(VerdictCounts.of(finding.verdicts))
