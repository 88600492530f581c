"""Metrics of the answer: by the question, by a reference, and by where its wrong claims come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ragtrace.metrics.asking import both
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings, tally
from ragtrace.metrics.faithfulness import nothing_stated
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.steps import cosine
from ragtrace.model import (
    OF_REFERENCE,
    Direction,
    Intermediate,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.scoring import coverage, relevant_share, serving_share, strict_faithfulness
from ragtrace.scoring.formulas import SCORE, Readings


class AnswerRelevance(BuiltInMetric):
    """Measures the share of an answer's statements that answer the question, or help to.

    score = (D + B) / (n - U): of n statements of every kind, D answer the question directly, B support those,
    I are irrelevant and U are unjudged. Whether they are true does not matter.

    Details: ``direct`` = D / (n - U), ``coverage`` = (n - U) / n, ``sentence_coverage``: share of the
    answer's sentences that a statement was drawn from.

    Source: DeepEval's answer relevancy, (yes + borderline) / verdicts, without its 1 for an answer that
    states nothing. RAGAS' metric of this name is ``question_similarity``.
    """

    name = "answer_relevance"
    needs = (Part.QUESTION, Part.ANSWER)
    uses = ("extract", "relevance")
    good, wrong = VerdictLabel.RELEVANT, VerdictLabel.IRRELEVANT

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the statements that serve the question."""
        extraction = await steps.extract()
        if extraction.refusal or not extraction.statements:
            return nothing_stated(extraction)
        verdicts = await steps.relevance()
        counts = VerdictCounts.of(verdicts)
        if not counts.judged:
            return MetricFinding(
                skip_reason=SkipReason.ALL_UNJUDGED, explanation=_explain_relevance(counts), verdicts=verdicts
            )
        return MetricFinding(
            score=serving_share(counts),
            explanation=_explain_relevance(counts),
            verdicts=verdicts,
            details=readings(
                direct=relevant_share(counts),
                coverage=coverage(counts),
                sentence_coverage=extraction.sentence_coverage,
            ),
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the statements that serve the question."""
        return serving_share(VerdictCounts.of(finding.verdicts))


def _explain_relevance(counts: VerdictCounts) -> str:
    wrong = {"irrelevant": counts.irrelevant, "unjudged": counts.unjudged}
    return tally(counts.total, "statement", "relevant", wrong)


class QuestionSimilarity(BuiltInMetric):
    """Measures how similar the question is to questions that a judge generates from the answer alone.

    score = mean over the questions q_i of cos(q, q_i), by the embedder's vectors. A cosine is in [-1, 1]; if
    the mean is below 0, there is no score (``out_of_range``). Refusals get no score either (``refusal``).

    Details: ``cosine``: the plain mean, ``questions``: how many were compared, ``min_cosine``.

    Source: RAGAS' answer relevancy (Es et al. 2023). RAGAS makes three calls at a temperature near 0,
    which give the same question three times, and scores noncommittal answers 0. Here one call asks for three
    wordings.
    """

    name = "question_similarity"
    needs = (Part.QUESTION, Part.ANSWER)
    uses = ("questions",)

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Compare the question with those generated from the answer."""
        steps.checked_embedder()  # fails before a judge call is wasted
        made = await steps.questions()
        if made.noncommittal:
            return MetricFinding(skip_reason=SkipReason.REFUSAL, explanation="the answer declines to answer")
        if not made.questions:
            return MetricFinding(
                skip_reason=SkipReason.ALL_UNJUDGED, explanation="the judge made no question from the answer"
            )
        asked, *others = await steps.embed((record.question or "", *made.questions))
        cosines = [cosine(asked, other) for other in others]
        compared = Intermediate(questions=made.questions, similarities=tuple(cosines))
        return replace(_similarity(cosines), intermediate=compared)


def _similarity(cosines: list[float]) -> MetricFinding:
    mean = fmean(cosines)
    details = readings(cosine=mean, questions=len(cosines), min_cosine=min(cosines))
    if mean < 0:
        explanation = f"the mean cosine is {mean:.3f}: below 0 it is no share"
        return MetricFinding(skip_reason=SkipReason.OUT_OF_RANGE, explanation=explanation, details=details)
    explanation = f"mean cosine of {len(cosines)} questions that the answer would answer: {mean:.3f}"
    return MetricFinding(score=mean, explanation=explanation, details=details)


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


_WRONG = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
_RIGHT, _NOISE, _SIGNAL, _INVENTED, _OPEN = "right", "noise", "signal", "invented", "open"


class NoiseSensitivity(BuiltInMetric):
    """Measures the share of an answer's claims that are wrong because the model believed an irrelevant chunk.

    score = W / (n - U): of n claims, W are not in the reference answer, and the chunks that support them are
    all irrelevant (grade below 2); U are undecided: one of the verdicts or grades that it takes is missing.
    Lower is better.

    Details: ``relevant``: the share of wrong claims that a relevant chunk supports, ``invented``: the share
    that no chunk supports, ``coverage`` = (n - U) / n.

    Source: RAGAS' noise sensitivity (after RAGChecker, Ru et al. 2024) in its mode *irrelevant*; its mode
    *relevant* is ``relevant``. There a chunk is relevant if it supports a claim of the reference.
    """

    name = "noise_sensitivity"
    direction = Direction.LOWER_IS_BETTER
    needs = (Part.QUESTION, Part.CONTEXT, Part.ANSWER, Part.REFERENCE)
    uses = ("extract", "verify", "chunks")

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Find the wrong claims, and the grades of the chunks that they come from."""
        extraction = await steps.extract()
        if not extraction.claims:
            return nothing_stated(extraction)
        by_chunks = both(steps.verify(), steps.chunks())
        by_reference, (verification, grading) = await both(steps.verify_by_reference(), by_chunks)
        grades = {verdict.chunk_id: verdict.label for verdict in grading.verdicts}
        pairs = list(zip(by_reference, verification.verdicts, strict=True))
        causes = [_cause(right, source, grades) for right, source in pairs]
        counts, total = Counter(causes), len(causes)
        decided = total - counts[_OPEN]
        verdicts = tuple(
            _shown(right, source)
            for (right, source), cause in zip(pairs, causes, strict=True)
            if cause == _NOISE
        )
        said = f"{counts[_NOISE]} of {total} claim{'s' if total > 1 else ''} wrong by an irrelevant chunk"
        if counts[_OPEN]:
            said += f", {counts[_OPEN]} undecided"
        if not decided:
            return MetricFinding(skip_reason=SkipReason.ALL_UNJUDGED, explanation=said)
        return MetricFinding(
            score=counts[_NOISE] / decided,
            explanation=said,
            verdicts=verdicts,
            details=readings(
                relevant=counts[_SIGNAL] / decided,
                invented=counts[_INVENTED] / decided,
                coverage=decided / total,
            ),
        )


def _cause(right: Verdict, source: Verdict, grades: dict[str, VerdictLabel]) -> str:
    if right.label is VerdictLabel.SUPPORTED:
        return _RIGHT
    if right.label is VerdictLabel.UNJUDGED or source.label is VerdictLabel.UNJUDGED:
        return _OPEN
    if source.label in _WRONG:
        return _INVENTED
    found = {grades.get(chunk_id, VerdictLabel.UNJUDGED) for chunk_id in source.chunk_ids}
    if VerdictLabel.RELEVANT in found:
        return _SIGNAL
    return _OPEN if not found or VerdictLabel.UNJUDGED in found else _NOISE


def _shown(right: Verdict, source: Verdict) -> Verdict:
    """Return the reference's verdict with the chunk that the claim comes from."""
    return replace(
        right,
        claim=replace(right.claim, kind=OF_REFERENCE),
        reason="by the reference it is wrong; it comes from a chunk that does not answer the question",
        chunk_ids=source.chunk_ids,
        quote=source.quote,
        quote_verified=source.quote_verified,
    )
