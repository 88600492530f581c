"""Faithfulness: the share of the answer's claims that the retrieved chunks support.

The answer is split into claims, the judge looks up each claim in the chunks, and code computes the score from
the verdicts: supported / judged. Claims that the chunks do not mention are not faithful. Unjudged claims are
not counted, but reported. Faithfulness does not measure whether a claim is *true*.
"""

from __future__ import annotations

from ragtrace.metrics._claims import ClaimMetric, explain_support, judged_claims
from ragtrace.metrics.base import MetricFinding, readings
from ragtrace.model import Part, RagRecord, VerdictCounts
from ragtrace.ports import Steps
from ragtrace.scoring import coverage, lenient_faithfulness, lower_bound, strict_faithfulness


class Faithfulness(ClaimMetric):
    """Measures the share of an answer's claims that its context supports.

    score = S / (n - U), with S supported, C contradicted, N unsupported and U unjudged of n claims.

    Passes if no claim is contradicted or unsupported and at least half of them are decided. There is no score
    (``undecided``) if no wrong claim was found but fewer are decided, or if the judge left out a verdict that
    would decide. ``pass_when`` takes other rules.

    Details: ``lenient`` = (S + N) / (n - U), ``lower_bound`` = S / n, ``coverage`` = (n - U) / n,
    ``sentence_coverage``: share of the answer's sentences that a statement was drawn from, and the numbers
    ``claims_rejected``, ``verdicts_rejected``, ``quotes_unverified`` and, with canary claims,
    ``sentinels_passed``.

    With the option ``truths`` also the numbers ``truths``, ``truths_cut`` (beyond the limit) and
    ``chunks_unread`` (no usable answer about them: the judge saw the chunk itself).

    Source: RAGAS' faithfulness (Es et al. 2023), with claim ids assigned by code.
    """

    name = "faithfulness"
    needs = (Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "verify")

    async def find(self, record: RagRecord, steps: Steps) -> MetricFinding:
        """Count the supported claims."""
        found = await judged_claims(self, steps)
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
                **found.truth_counts,
            ),
            intermediate=found.intermediate,
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the supported claims."""
        return strict_faithfulness(VerdictCounts.of(finding.verdicts))
