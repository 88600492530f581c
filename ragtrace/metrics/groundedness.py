"""Groundedness: the share of the answer's sentences that the retrieved chunks fully support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ragtrace.metrics.base import MetricFinding, readings
from ragtrace.metrics.faithfulness import ClaimMetric, ClaimVerdicts, explain_support, judged_claims
from ragtrace.metrics.session import StepSession
from ragtrace.model import Claim, Part, RagRecord, SkipReason, Verdict, VerdictCounts, VerdictLabel
from ragtrace.scoring import coverage, lower_bound, strict_faithfulness
from ragtrace.sentences import Sentence, split_sentences

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
