"""The claims of an answer with their verdicts, which several metrics count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ragtrace.errors import ConfigError
from ragtrace.judge_steps import ClaimExtraction, Verification
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, tally
from ragtrace.metrics.prompt import PromptSource
from ragtrace.model import SkipReason, Verdict, VerdictCounts, VerdictLabel
from ragtrace.ports import Steps
from ragtrace.scoring.pass_rule import CLAIM_READINGS, Readings, claim_readings


class ClaimMetric(BuiltInMetric):
    """A metric that counts verdicts on claims. By default it passes only if no claim is wrong."""

    readings = CLAIM_READINGS
    passes = "contradicted == 0 and unsupported == 0 and coverage >= 0.5"

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        on_missing: str = "unjudged",
        require_evidence: bool = False,
    ) -> None:
        """``on_missing`` says what a claim counts as if the judge gave no usable verdict on it.

        With ``require_evidence`` a supported claim is such a one, unless a chunk of the record and a quote
        that is found there support it.

        Raises:
            ConfigError: an option has another value.
        """
        super().__init__(
            threshold=threshold, pass_when=pass_when, judge_truncated=judge_truncated, prompts=prompts
        )
        if on_missing not in _ON_MISSING:
            raise ConfigError(f"{self.name}: `on_missing` is {' or '.join(_ON_MISSING)}, not {on_missing!r}")
        self.on_missing, self.require_evidence = on_missing, require_evidence

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        return "-".join([super().version, *self._readings_chosen()])

    def _readings_chosen(self) -> Iterator[str]:
        if self.on_missing != _ON_MISSING[0]:
            yield f"missing-{self.on_missing}"
        if self.require_evidence:
            yield "evidence"

    def counted(self, verdict: Verdict) -> Verdict:
        """Return a verdict as the options count it."""
        is_bare = verdict.label is VerdictLabel.SUPPORTED and not (
            verdict.chunk_ids and verdict.quote_verified
        )
        if self.require_evidence and is_bare:
            verdict = replace(verdict, label=VerdictLabel.UNJUDGED, reason=_NO_EVIDENCE)
        if verdict.label is VerdictLabel.UNJUDGED and self.on_missing == VerdictLabel.UNSUPPORTED:
            return replace(verdict, label=VerdictLabel.UNSUPPORTED, omitted=False)
        return verdict

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


_ON_MISSING: Final = (VerdictLabel.UNJUDGED.value, VerdictLabel.UNSUPPORTED.value)
_NO_EVIDENCE: Final = "supported without a chunk and a quote that could be found there"


async def judged_claims(metric: ClaimMetric, steps: Steps) -> ClaimVerdicts | MetricFinding:
    """Return the claims of the answer with their verdicts, or a finding if there is nothing to count.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    extraction = await steps.extract()
    if not extraction.claims:
        return nothing_stated(extraction)
    verification = await steps.verify()
    verification = replace(verification, verdicts=tuple(map(metric.counted, verification.verdicts)))
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
