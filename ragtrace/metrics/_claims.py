"""The claims of an answer with their verdicts, which several metrics count."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.judge_steps import ClaimExtraction, Verification
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, tally
from ragtrace.model import SkipReason, VerdictCounts
from ragtrace.ports import Steps
from ragtrace.scoring.pass_rule import CLAIM_READINGS, Readings, claim_readings


class ClaimMetric(BuiltInMetric):
    """A metric that counts verdicts on claims. By default it passes only if no claim is wrong."""

    readings = CLAIM_READINGS
    passes = "contradicted == 0 and unsupported == 0 and coverage >= 0.5"

    def read(self, finding: MetricFinding) -> Readings:
        """Return the readings that a pass rule may use, from the verdicts."""
        return claim_readings(self.score_of(finding), VerdictCounts.of(finding.verdicts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdicts:
    """The results of steps A and B, with at least one decided claim."""

    extraction: ClaimExtraction
    verification: Verification
    counts: VerdictCounts

    @property
    def caution(self) -> str:
        """Return a note if claims were drawn from less than half of the sentences."""
        share = self.extraction.sentence_coverage
        return "" if share is None or share >= 0.5 else f", drawn from only {share:.0%} of the sentences"


async def judged_claims(steps: Steps) -> ClaimVerdicts | MetricFinding:
    """Return the claims of the answer with their verdicts, or a finding if there is nothing to count.

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
    """Return the finding of an answer without claims."""
    if extraction.refusal:
        return MetricFinding(skip_reason=SkipReason.REFUSAL, explanation="the answer declines to answer")
    return MetricFinding(
        skip_reason=SkipReason.NO_CLAIMS, explanation="the answer states nothing that can be checked"
    )


def explain_support(counts: VerdictCounts, unit: str = "claim") -> str:
    """Describe in one line what is not supported."""
    wrong = {
        "contradicted": counts.contradicted,
        "unsupported": counts.unsupported,
        "unjudged": counts.unjudged,
    }
    return tally(counts.total, unit, "supported", wrong)
