"""Faithfulness: what share of the answer's claims stands on the retrieved chunks.

The answer is parted into claims, each claim is looked up in the chunks, and the score is counted from the
verdicts: supported / judged. What the chunks do not mention is not faithful; what could not be judged is not
counted, and said. Whether a claim is *true* is another question, and not asked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ragtrace.metrics.steps import Extraction, Steps, Verification
from ragtrace.model import (
    Direction,
    Gap,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictCounts,
)
from ragtrace.scoring import coverage, lenient_faithfulness, lower_bound, strict_faithfulness

__all__ = ["Faithfulness"]


class Faithfulness:
    """Measures the share of an answer's claims that its context supports."""

    name = "faithfulness"
    profile = "ragtrace"
    direction = Direction.HIGHER_IS_BETTER
    needs = (Part.CONTEXT, Part.ANSWER)

    def __init__(self, *, threshold: float = 0.5, judge_truncated: bool = False) -> None:
        self.threshold = threshold
        self.judge_truncated = judge_truncated
        """Judge records whose context or answer was cut on its way, instead of skipping them."""

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        return "1-truncated" if self.judge_truncated else "1"

    async def measure(self, record: RagRecord, steps: Steps) -> MetricResult:
        """Score the answer, or skip it with a reason.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        if gap := self._gap(record):
            return self._skip(steps, gap.reason, gap.detail)

        extraction = await steps.extract()
        if not extraction.claims:
            reason = SkipReason.REFUSAL if extraction.refusal else SkipReason.NO_CLAIMS
            return self._skip(steps, reason, _NOTHING_TO_JUDGE[reason])

        verification = await steps.verify()
        counts = VerdictCounts.of(verification.verdicts)
        if not counts.judged:
            return self._skip(steps, SkipReason.ALL_UNJUDGED, _explain(counts), verification.verdicts)
        return self._result(
            steps,
            score=strict_faithfulness(counts),
            explanation=_explain(counts) + _caution(extraction),
            verdicts=verification.verdicts,
            details=_details(counts, extraction, verification),
        )

    def _gap(self, record: RagRecord) -> Gap | None:
        gaps = (gap for gap in (*record.gaps, *_further_gaps(record)) if gap.part in self.needs)
        forgiven = {SkipReason.TRUNCATED} if self.judge_truncated else set()
        return next((gap for gap in gaps if gap.reason not in forgiven), None)

    def _skip(
        self, steps: Steps, reason: SkipReason, explanation: str, verdicts: tuple[Verdict, ...] = ()
    ) -> MetricResult:
        return self._result(
            steps, score=None, skip_reason=reason, explanation=explanation, verdicts=verdicts, details={}
        )

    def _result(
        self,
        steps: Steps,
        *,
        score: float | None,
        explanation: str,
        verdicts: tuple[Verdict, ...],
        details: Mapping[str, float],
        skip_reason: SkipReason | None = None,
    ) -> MetricResult:
        return MetricResult(
            metric=self.name,
            profile=self.profile,
            score=score,
            threshold=self.threshold,
            direction=self.direction,
            evaluator_version=steps.version_of(self),
            skip_reason=skip_reason,
            explanation=explanation,
            verdicts=verdicts,
            details=details,
            prompt_sha256=steps.prompts.sha256,
            usage=steps.usage,
        )


_NOTHING_TO_JUDGE = {
    SkipReason.REFUSAL: "the answer declines to answer",
    SkipReason.NO_CLAIMS: "the answer states nothing that can be checked",
}


def _further_gaps(record: RagRecord) -> Iterator[Gap]:
    """Find what a record that does not come from a trace may lack: nobody noted gaps for it."""
    if not (record.answer or "").strip():
        yield Gap(part=Part.ANSWER, reason=SkipReason.NO_CONTENT, detail="the record has no answer")
    if not record.chunks:
        yield Gap(part=Part.CONTEXT, reason=SkipReason.NO_RETRIEVAL, detail="the record has no chunks")
    elif not any((chunk.text or "").strip() for chunk in record.chunks):
        yield Gap(part=Part.CONTEXT, reason=SkipReason.NO_CONTENT, detail="no chunk of the record has text")
    if any(chunk.truncated for chunk in record.chunks):
        yield Gap(part=Part.CONTEXT, reason=SkipReason.TRUNCATED, detail="a chunk was cut on its way")


def _explain(counts: VerdictCounts) -> str:
    """Say in one line what keeps the answer from being faithful."""
    found = {
        "contradicted": counts.contradicted,
        "not mentioned": counts.unsupported,
        "unjudged": counts.unjudged,
    }
    wrong = [f"{number} {what}" for what, number in found.items() if number]
    claims = "1 claim" if counts.total == 1 else f"{counts.total} claims"
    if not wrong:
        return f"{claims} supported" if counts.total == 1 else f"all {claims} supported"
    first, *rest = wrong
    number, what = first.split(" ", 1)
    return ", ".join([f"{number} of {claims} {what}", *rest])


def _caution(extraction: Extraction) -> str:
    """Say where the judge passed over most of the answer: then the score is about little."""
    share = extraction.sentence_coverage
    return "" if share is None or share >= 0.5 else f", drawn from only {share:.0%} of the sentences"


def _details(
    counts: VerdictCounts, extraction: Extraction, verification: Verification
) -> Mapping[str, float]:
    readings = {
        "lenient": lenient_faithfulness(counts),
        "lower_bound": lower_bound(counts),
        "coverage": coverage(counts),
        "sentence_coverage": extraction.sentence_coverage,
        "claims_rejected": extraction.rejected,
        "verdicts_rejected": verification.rejected,
        "quotes_unverified": verification.quotes_unverified,
    }
    return {name: float(value) for name, value in readings.items() if value is not None}
