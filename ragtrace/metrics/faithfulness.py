"""Faithfulness: the share of the answer's claims that the retrieved chunks support.

The answer is split into claims, the judge looks up each claim in the chunks, and code computes the score from
the verdicts: supported / judged. Claims that the chunks do not mention are not faithful. Unjudged claims are
not counted, but reported. Faithfulness does not measure whether a claim is *true*.

Hallucination, groundedness and the RAG score count the same verdicts: they share `ClaimMetric`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Unpack

from ragtrace.judge_steps import ClaimExtraction, StepName, Verification, VerifyForm
from ragtrace.metrics.base import (
    INCIDENTAL,
    BuiltInMetric,
    MetricFinding,
    MetricOptions,
    readings,
    tally,
    unjudged,
)
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    Claim,
    Direction,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.scoring.formulas import (
    CLAIM_READINGS,
    Readings,
    claim_readings,
    contradicted_share,
    coverage,
    lenient_faithfulness,
    lower_bound,
    strict_faithfulness,
    ungrounded_share,
)
from ragtrace.sentences import Sentence, split_sentences


class ClaimMetric(BuiltInMetric):
    """A metric that counts verdicts on claims. By default it passes if no claim has a material flaw."""

    readings = CLAIM_READINGS
    rules = "2"
    passes = "material_contradicted == 0 and material_unsupported == 0 and coverage >= 0.5"
    needs: tuple[Part, ...] = (Part.CONTEXT, Part.ANSWER)
    uses: tuple[StepName, ...] = ("extract", "verify")

    def __init__(self, *, require_evidence: bool = True, **options: Unpack[MetricOptions]) -> None:
        """With ``require_evidence`` a claim is supported only if a quote in a chunk that it cites says so.

        Verdicts in a form without quotes need none.
        """
        super().__init__(**options)
        self.require_evidence = require_evidence

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        half = "" if self._rule.limits_coverage else "-half"
        return f"{super().version}{half}{'' if self.require_evidence else '-bare'}"

    def read(self, finding: MetricFinding) -> Readings:
        """Return the readings that a pass rule may use, from the verdicts."""
        return claim_readings(self.score_of(finding), finding.verdicts)


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


_NO_EVIDENCE: Final = "no evidence: the judge calls it supported, and its quote is in no chunk that it cites"


async def judged_claims(metric: ClaimMetric, steps: StepSession) -> ClaimVerdicts | MetricFinding:
    """Return the claims of the answer with their verdicts, or a finding if there is nothing to count."""
    extraction = await steps.extract()
    if not extraction.claims:
        return nothing_stated(extraction)
    verification = await steps.verify()
    if metric.require_evidence and verification.form is VerifyForm.JSON and not steps.judge.is_human:
        verification = replace(verification, verdicts=tuple(map(_evident, verification.verdicts)))
    verdicts = verification.verdicts
    counts = VerdictCounts.of(verdicts)
    if not counts.judged:
        return unjudged(explain_support(verdicts), verdicts)
    return ClaimVerdicts(extraction=extraction, verification=verification, counts=counts)


def _evident(verdict: Verdict) -> Verdict:
    is_bare = verdict.label is VerdictLabel.SUPPORTED and not verdict.quote_verified
    return replace(verdict, label=VerdictLabel.UNJUDGED, reason=_NO_EVIDENCE) if is_bare else verdict


def nothing_stated(extraction: ClaimExtraction) -> MetricFinding:
    """Return the finding of an answer without claims."""
    if extraction.refusal:
        return MetricFinding(skip_reason=SkipReason.REFUSAL, explanation="the answer declines to answer")
    return MetricFinding(
        skip_reason=SkipReason.NO_CLAIMS, explanation="the answer states nothing that can be checked"
    )


def explain_support(verdicts: Sequence[Verdict], unit: str = "claim") -> str:
    """Describe in one line what is not supported."""
    counts = VerdictCounts.of(verdict for verdict in verdicts if not verdict.is_incidental)
    wrong = {
        "contradicted": counts.contradicted,
        "unsupported": counts.unsupported,
        INCIDENTAL: len(verdicts) - counts.total,
        "unjudged": counts.unjudged,
    }
    return tally(len(verdicts), unit, "supported", wrong)


class Faithfulness(ClaimMetric):
    """Measures the share of an answer's claims that its context supports.

    score = S / (n - U), with S supported, C contradicted, N unsupported and U unjudged of n claims.

    Passes if no claim is contradicted or unsupported by more than an incidental word, and at least half of
    them are decided. There is no score (``undecided``) if no wrong claim was found but fewer are decided, or
    if the judge left out a verdict that would decide. ``pass_when`` takes other rules.

    Details: ``lenient`` = (S + N) / (n - U), ``lower_bound`` = S / n, ``coverage`` = (n - U) / n,
    ``sentence_coverage``: share of the answer's sentences that a statement was drawn from, and the numbers
    ``claims_rejected``, ``verdicts_rejected``, ``quotes_unverified`` and, with canary claims,
    ``sentinels_passed``.

    Source: RAGAS' faithfulness (Es et al. 2023), with claim ids assigned by code.
    """

    name = "faithfulness"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the supported claims."""
        found = await judged_claims(self, steps)
        if isinstance(found, MetricFinding):
            return found
        counts = found.counts
        return MetricFinding(
            score=strict_faithfulness(counts),
            explanation=explain_support(found.verification.verdicts) + found.caution,
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


_WORST_FIRST = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
    VerdictLabel.SUPPORTED,
)


class Groundedness(ClaimMetric):
    """Measures the share of an answer's sentences that have only supported claims.

    score = G / (m - U): of the m sentences with at least one factual claim, G have only supported claims, and
    U have no wrong claim but an unjudged one. Sentences without a claim (headings, courtesies) do not count.
    A claim that was drawn from several sentences counts in each.

    Passes, like faithfulness, if no sentence has a materially wrong claim and at least half of them are
    decided.

    Details: ``lower_bound`` = G / m, ``coverage`` = (m - U) / m.

    Source: TruLens' groundedness and RAGTruth's labels go by the sentence; the verdicts are faithfulness'.
    """

    name = "groundedness"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the sentences with only supported claims."""
        found = await judged_claims(self, steps)
        if isinstance(found, MetricFinding):
            return found
        verdicts = tuple(_by_sentence(split_sentences(record.answer or ""), found))
        counts = VerdictCounts.of(verdicts)
        score = strict_faithfulness(counts)
        return MetricFinding(
            score=score,
            skip_reason=SkipReason.ALL_UNJUDGED if score is None else None,
            explanation=explain_support(verdicts, "sentence") + found.caution,
            verdicts=verdicts,
            details=readings(lower_bound=lower_bound(counts), coverage=coverage(counts)),
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the sentences with only supported claims."""
        return strict_faithfulness(VerdictCounts.of(finding.verdicts))


def _by_sentence(sentences: Sequence[Sentence], found: ClaimVerdicts) -> Iterator[Verdict]:
    sources = list(zip(found.extraction.sources, found.verification.verdicts, strict=True))
    index = 0
    for sentence in sentences:
        stated = [verdict for numbers, verdict in sources if sentence.number in numbers]
        if stated:
            yield _worst(sentence, index, stated)
            index += 1


def _worst(sentence: Sentence, index: int, stated: Sequence[Verdict]) -> Verdict:
    """Return the decisive verdict of a sentence's claims, with its evidence, as a verdict on the sentence."""
    worst = min(stated, key=lambda verdict: (_WORST_FIRST.index(verdict.label), not verdict.omitted))
    material = any(verdict.label in _WORST_FIRST[:2] and verdict.material for verdict in stated)
    claim = Claim(index=index, text=sentence.text, start=sentence.start, end=sentence.end, kind="sentence")
    return replace(worst, claim=claim, material=material or not worst.is_incidental)


_BLIND = "this judge cannot tell a contradiction from what the context does not mention"


class Hallucination(ClaimMetric):
    """Measures the share of an answer's claims that its context contradicts: lower is better.

    score = C / (n - U), with S supported, C contradicted, N unsupported and U unjudged of n claims: 1 minus
    lenient faithfulness, from the same verdicts. Claims that the context does not mention only count in the
    details, and in faithfulness. A judge that cannot tell the two apart (the lexical one) gives no score.

    Passes if no claim is contradicted by more than an incidental word and at least half of them are decided.

    Details: ``unsupported_share`` = N / (n - U), ``ungrounded_share`` = (C + N) / (n - U), ``upper_bound`` =
    (C + U) / n: if every unjudged claim were contradicted, ``coverage`` = (n - U) / n.

    Source: RAGTruth (Niu et al. 2024) distinguishes evident conflict (the score) from baseless information
    (``unsupported_share``). DeepEval's metric of this name counts chunks, not claims.
    """

    name = "hallucination"
    direction = Direction.LOWER_IS_BETTER
    passes = "material_contradicted == 0 and coverage >= 0.5"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the contradicted claims."""
        if not steps.judge.contradicts:
            return unjudged(_BLIND)
        found = await judged_claims(self, steps)
        if isinstance(found, MetricFinding):
            return found
        counts = found.counts
        return MetricFinding(
            score=contradicted_share(counts),
            explanation=_explain_contradiction(found.verification.verdicts) + found.caution,
            verdicts=found.verification.verdicts,
            details=readings(
                unsupported_share=counts.unsupported / counts.judged,
                ungrounded_share=ungrounded_share(counts),
                upper_bound=(counts.contradicted + counts.unjudged) / counts.total,
                coverage=coverage(counts),
            ),
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the contradicted claims."""
        return contradicted_share(VerdictCounts.of(finding.verdicts))


def _explain_contradiction(verdicts: Sequence[Verdict]) -> str:
    counts = VerdictCounts.of(verdicts)
    material = VerdictCounts.of(verdict for verdict in verdicts if not verdict.is_incidental).contradicted
    wrong = {
        "contradicted": material,
        INCIDENTAL: counts.contradicted - material,
        "unjudged": counts.unjudged,
    }
    return tally(counts.total, "claim", "free of contradiction", wrong)
