"""The claims of an answer with their verdicts: what several metrics count in their own ways."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.metrics.base import BuiltInMetric, MetricFinding, tally
from ragtrace.metrics.steps import ClaimExtraction, Steps, Verification
from ragtrace.model import SkipReason, VerdictCounts
from ragtrace.scoring.pass_rule import CLAIM_READINGS, Readings, claim_readings


class ClaimMetric(BuiltInMetric):
    """A metric that counts verdicts on claims. It passes only where nothing is wrong with any of them."""

    readings = CLAIM_READINGS
    passes = "contradicted == 0 and unsupported == 0 and coverage >= 0.5"

    def read(self, finding: MetricFinding) -> Readings:
        """Read from the verdicts what the rule of a pass may ask for."""
        return claim_readings(self.score_of(finding), VerdictCounts.of(finding.verdicts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdicts:
    """Steps A and B, with at least one claim that the judge decided."""

    extraction: ClaimExtraction
    verification: Verification
    counts: VerdictCounts

    @property
    def caution(self) -> str:
        """Say where the judge passed over most of the answer: then the score is about little."""
        share = self.extraction.sentence_coverage
        return "" if share is None or share >= 0.5 else f", drawn from only {share:.0%} of the sentences"


async def judged_claims(steps: Steps) -> ClaimVerdicts | MetricFinding:
    """Get the claims of the answer with their verdicts, or the finding that there is nothing to count.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    extraction = await steps.extract()
    if not extraction.claims:
        return nothing_stated(extraction)
    verification = await steps.verify()
    counts = VerdictCounts.of(verification.verdicts)
    if not counts.judged:
        return MetricFinding(
            skip_reason=SkipReason.ALL_UNJUDGED,
            explanation=explain_support(counts),
            verdicts=verification.verdicts,
        )
    return ClaimVerdicts(extraction=extraction, verification=verification, counts=counts)


def nothing_stated(extraction: ClaimExtraction) -> MetricFinding:
    """Say why an answer has nothing to judge."""
    if extraction.refusal:
        return MetricFinding(skip_reason=SkipReason.REFUSAL, explanation="the answer declines to answer")
    return MetricFinding(
        skip_reason=SkipReason.NO_CLAIMS, explanation="the answer states nothing that can be checked"
    )


def explain_support(counts: VerdictCounts, unit: str = "claim") -> str:
    """Say in one line what is not supported."""
    wrong = {
        "contradicted": counts.contradicted,
        "unsupported": counts.unsupported,
        "unjudged": counts.unjudged,
    }
    return tally(counts.total, unit, "supported", wrong)
