"""Factual correctness: how far an answer and the reference answer state the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragtrace.metrics.asking import both
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings
from ragtrace.metrics.faithfulness import nothing_stated
from ragtrace.metrics.session import StepSession
from ragtrace.model import OF_REFERENCE, Part, RagRecord, SkipReason, Verdict, VerdictCounts
from ragtrace.scoring import coverage, strict_faithfulness
from ragtrace.scoring.pass_rule import SCORE, Readings


class FactualCorrectness(BuiltInMetric):
    """Measures how far the answer states what the reference answer states, and nothing else.

    score = F1 = 2 P R / (P + R), 0 if both are 0. P: share of the answer's decided claims that the reference
    supports; R: share of the reference's decided sentences that the answer supports. The chunks don't count.

    Details: ``precision`` = P, ``recall`` = R, ``coverage``: share of both that was decided.

    Source: RAGAS' factual correctness, in which the judge splits the reference into claims, and R takes its
    hits from the answer's claims.
    """

    name = "factual_correctness"
    needs = (Part.ANSWER, Part.REFERENCE)
    uses = ("extract", "verify")
    readings = (SCORE, "precision", "recall", "coverage")

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Look up the claims in the reference, and the reference's sentences in the answer."""
        extraction = await steps.extract()
        if not extraction.claims:
            return nothing_stated(extraction)
        claims, sentences = await both(steps.verify_by_reference(), steps.recall_by_answer())
        verdicts = (*_as_of(claims, "reference"), *_as_of(sentences, "answer"))
        precision, recall = map(strict_faithfulness, _counts(verdicts))
        whole = VerdictCounts.of(verdicts)
        if precision is None or recall is None:
            return MetricFinding(
                skip_reason=SkipReason.ALL_UNJUDGED,
                explanation="no claim was decided" if precision is None else "no sentence was decided",
                verdicts=verdicts,
            )
        return MetricFinding(
            score=_f1(precision, recall),
            explanation=f"precision {precision:.2f}, recall {recall:.2f}",
            verdicts=verdicts,
            details=readings(precision=precision, recall=recall, coverage=coverage(whole)),
        )

    def read(self, finding: MetricFinding) -> Readings:
        """Return score, precision, recall and coverage."""
        precision, recall = map(strict_faithfulness, _counts(finding.verdicts))
        score = None if precision is None or recall is None else _f1(precision, recall)
        told = coverage(VerdictCounts.of(finding.verdicts))
        return {SCORE: score, "precision": precision, "recall": recall, "coverage": told}


def _as_of(verdicts: Sequence[Verdict], text: str) -> list[Verdict]:
    """Return verdicts by a text with the kind of those about a reference; their evidence is in no chunk."""
    silent = f"the {text} does not mention it"
    return [
        replace(
            verdict,
            claim=replace(verdict.claim, kind=OF_REFERENCE),
            reason=f"by the {text}: {said}" if (said := verdict.reason or verdict.quote) else silent,
            chunk_ids=(),
            quote=None,
        )
        for verdict in verdicts
    ]


def _counts(verdicts: Sequence[Verdict]) -> tuple[VerdictCounts, VerdictCounts]:
    of_answer = [verdict for verdict in verdicts if verdict.claim.start is not None]
    of_reference = [verdict for verdict in verdicts if verdict.claim.start is None]
    return VerdictCounts.of(of_answer), VerdictCounts.of(of_reference)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
