"""Faithfulness: the share of the answer's claims that the retrieved chunks support.

The answer is split into claims, the judge looks up each claim in the chunks, and code computes the score from
the verdicts: supported / judged. Claims that the chunks do not mention are not faithful. Unjudged claims are
not counted, but reported. Faithfulness does not measure whether a claim is *true*.

Hallucination, groundedness and the RAG score count the same verdicts: they share `ClaimMetric`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragtrace.errors import ConfigError
from ragtrace.judge_steps import (
    ClaimExtraction,
    TruthMemory,
    TruthSettings,
    TruthVerification,
    Verification,
    VerifyForm,
)
from ragtrace.metrics.base import INCIDENTAL, BuiltInMetric, MetricFinding, readings, tally
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource
from ragtrace.model import (
    Claim,
    Direction,
    Intermediate,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.scoring import (
    contradicted_share,
    coverage,
    lenient_faithfulness,
    lower_bound,
    strict_faithfulness,
    ungrounded_share,
)
from ragtrace.scoring.formulas import CLAIM_READINGS, Readings, claim_readings
from ragtrace.sentences import Sentence, split_sentences


class ClaimMetric(BuiltInMetric):
    """A metric that counts verdicts on claims. By default it passes if no claim has a material flaw."""

    readings = CLAIM_READINGS
    rules = "2"
    passes = "material_contradicted == 0 and material_unsupported == 0 and coverage >= 0.5"

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        on_missing: str = "unjudged",
        require_evidence: bool | None = None,
        truths: bool = False,
        truths_limit: int | None = None,
    ) -> None:
        """``on_missing`` says what a claim counts as if the judge gave no usable verdict on it.

        With ``require_evidence`` a supported claim is such a one, unless a chunk of the record and a quote
        that is found there support it; verdicts in a form without quotes need none. It is the default, except
        with ``truths``, whose words need not be the chunk's. With ``truths`` claims are judged against facts
        that the judge first lists for each chunk, at most ``truths_limit`` a chunk, with one call more.

        Raises:
            ConfigError: an option has another value.
        """
        self.truths = _truth_settings(self.name, truths, truths_limit)
        if self.truths:
            self.uses = (*type(self).uses, "truths")
        super().__init__(
            threshold=threshold, pass_when=pass_when, judge_truncated=judge_truncated, prompts=prompts
        )
        if on_missing not in _ON_MISSING:
            raise ConfigError(f"{self.name}: `on_missing` is {' or '.join(_ON_MISSING)}, not {on_missing!r}")
        self.on_missing = on_missing
        self.require_evidence = not truths if require_evidence is None else require_evidence

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        return "-".join([super().version, *self._readings_chosen()])

    def _readings_chosen(self) -> Iterator[str]:
        if not self._rule.limits_coverage:
            yield "half"
        if self.on_missing != _ON_MISSING[0]:
            yield f"missing-{self.on_missing}"
        if self.require_evidence == bool(self.truths):
            yield "evidence" if self.require_evidence else "bare"
        if self.truths:
            yield "truths" if self.truths.limit is None else f"truths-{self.truths.limit}"

    def counted(self, verdict: Verdict, *, has_quotes: bool) -> Verdict:
        """Return a verdict as the options count it."""
        is_bare = verdict.label is VerdictLabel.SUPPORTED and not verdict.quote_verified
        if self.require_evidence and has_quotes and is_bare:
            verdict = replace(verdict, label=VerdictLabel.UNJUDGED, reason=_NO_EVIDENCE)
        if verdict.label is VerdictLabel.UNJUDGED and self.on_missing == VerdictLabel.UNSUPPORTED:
            return replace(verdict, label=VerdictLabel.UNSUPPORTED, omitted=False)
        return verdict

    def read(self, finding: MetricFinding) -> Readings:
        """Return the readings that a pass rule may use, from the verdicts."""
        return claim_readings(self.score_of(finding), finding.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdicts:
    """The results of steps A and B, with at least one decided claim."""

    extraction: ClaimExtraction
    verification: Verification
    counts: VerdictCounts
    read: TruthVerification | None = None
    """The truths that the claims were judged against, by option."""
    truths_limit: int | None = None

    @property
    def intermediate(self) -> Intermediate | None:
        """Return the truths."""
        return Intermediate(truths=self.read.truths, truths_limit=self.truths_limit) if self.read else None

    @property
    def truth_counts(self) -> dict[str, float | None]:
        """Return the numbers of truths and of chunks without any, for the details."""
        if self.read is None:
            return {}
        return {"truths": self.read.total, "truths_cut": self.read.cut, "chunks_unread": self.read.unread}

    @property
    def caution(self) -> str:
        """Return a note if claims were drawn from less than half of the sentences."""
        share = self.extraction.sentence_coverage
        return "" if share is None or share >= 0.5 else f", drawn from only {share:.0%} of the sentences"


_ON_MISSING: Final = (VerdictLabel.UNJUDGED.value, VerdictLabel.UNSUPPORTED.value)
_NO_EVIDENCE: Final = "no evidence: the judge calls it supported, and its quote is in no chunk that it cites"


async def judged_claims(metric: ClaimMetric, steps: StepSession) -> ClaimVerdicts | MetricFinding:
    """Return the claims of the answer with their verdicts, or a finding if there is nothing to count."""
    extraction = await steps.extract()
    if not extraction.claims:
        return nothing_stated(extraction)
    read = await steps.verify_by_truths(metric.truths) if metric.truths else None
    verification = read.verification if read else await steps.verify()
    has_quotes = verification.form is VerifyForm.JSON and not steps.judge.is_human
    verdicts = tuple(metric.counted(verdict, has_quotes=has_quotes) for verdict in verification.verdicts)
    verification = replace(verification, verdicts=verdicts)
    counts = VerdictCounts.of(verification.verdicts)
    if not counts.judged:
        return MetricFinding(
            skip_reason=SkipReason.ALL_UNJUDGED, explanation=explain_support(verdicts), verdicts=verdicts
        )
    return ClaimVerdicts(
        extraction=extraction,
        verification=verification,
        counts=counts,
        read=read,
        truths_limit=metric.truths.limit if metric.truths else None,
    )


def _truth_settings(name: str, truths: bool, limit: int | None) -> TruthSettings | None:
    if limit is not None and not truths:
        raise ConfigError(f"{name}: `truths_limit` needs `truths: true`")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 200):
        raise ConfigError(f"{name}: `truths_limit` is a whole number from 1 to 200, not {limit!r}")
    return TruthSettings(limit=limit, memory=TruthMemory()) if truths else None


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

    With the option ``truths`` also the numbers ``truths``, ``truths_cut`` (beyond the limit) and
    ``chunks_unread`` (no usable answer about them: the judge saw the chunk itself).

    Source: RAGAS' faithfulness (Es et al. 2023), with claim ids assigned by code.
    """

    name = "faithfulness"
    needs = (Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "verify")

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
                **found.truth_counts,
            ),
            intermediate=found.intermediate,
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
    needs = (Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "verify")

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
            details=readings(
                lower_bound=lower_bound(counts), coverage=coverage(counts), **found.truth_counts
            ),
            intermediate=found.intermediate,
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
    needs = (Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "verify")

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        on_missing: str = "unjudged",
        require_evidence: bool | None = None,
        truths: bool = False,
        truths_limit: int | None = None,
        count_unsupported: bool = False,
    ) -> None:
        """With ``count_unsupported``, the score is ``ungrounded_share``, and both kinds of claims fail.

        Raises:
            ConfigError: an option has another value.
        """
        self.count_unsupported = count_unsupported
        if count_unsupported:
            self.passes = ClaimMetric.passes
        super().__init__(
            threshold=threshold,
            pass_when=pass_when,
            judge_truncated=judge_truncated,
            prompts=prompts,
            on_missing=on_missing,
            require_evidence=require_evidence,
            truths=truths,
            truths_limit=truths_limit,
        )

    def _readings_chosen(self) -> Iterator[str]:
        yield from super()._readings_chosen()
        if self.count_unsupported:
            yield "ungrounded"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the contradicted claims."""
        if not steps.judge.contradicts and not self.count_unsupported:
            return MetricFinding(skip_reason=SkipReason.ALL_UNJUDGED, explanation=_BLIND)
        found = await judged_claims(self, steps)
        if isinstance(found, MetricFinding):
            return found
        counts = found.counts
        return MetricFinding(
            score=self._share(counts),
            explanation=self._explain(found.verification.verdicts) + found.caution,
            verdicts=found.verification.verdicts,
            details=readings(
                unsupported_share=counts.unsupported / counts.judged,
                ungrounded_share=ungrounded_share(counts),
                upper_bound=(counts.contradicted + counts.unjudged) / counts.total,
                coverage=coverage(counts),
                **found.truth_counts,
            ),
            intermediate=found.intermediate,
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the contradicted claims, and by option the unsupported ones."""
        return self._share(VerdictCounts.of(finding.verdicts))

    def _share(self, counts: VerdictCounts) -> float | None:
        return ungrounded_share(counts) if self.count_unsupported else contradicted_share(counts)

    def _explain(self, verdicts: Sequence[Verdict]) -> str:
        if self.count_unsupported:
            return explain_support(verdicts)
        counts = VerdictCounts.of(verdicts)
        material = VerdictCounts.of(verdict for verdict in verdicts if not verdict.is_incidental).contradicted
        wrong = {
            "contradicted": material,
            INCIDENTAL: counts.contradicted - material,
            "unjudged": counts.unjudged,
        }
        return tally(counts.total, "claim", "free of contradiction", wrong)
