"""Metrics of the answer: by the question, by a reference, by where its wrong claims come from, and by a
criterion of one's own; and the RAG score: three scores in one number, and a diagnosis of where a call
fails.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum, isclose
from statistics import fmean
from typing import Final, Unpack

from ragtrace.errors import ConfigError
from ragtrace.metrics.asking import both, together
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, MetricOptions, readings, tally, unjudged
from ragtrace.metrics.faithfulness import ClaimMetric, Faithfulness, nothing_stated
from ragtrace.metrics.retrieval import ChunkPrecision
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.steps import cosine
from ragtrace.model import (
    OF_REFERENCE,
    Diagnosis,
    Direction,
    Intermediate,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.scoring.formulas import (
    SCORE,
    Readings,
    coverage,
    relevant_share,
    serving_share,
    strict_faithfulness,
)


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
            return unjudged(_explain_relevance(counts), verdicts)
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
            return unjudged("the judge made no question from the answer")
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
            what = "claim" if precision is None else "sentence"
            return unjudged(f"no {what} was decided", verdicts)
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
    *relevant* is ``relevant``. There a chunk is relevant if it supports a claim of the reference, and each
    chunk is asked about each claim: a judge that names one of several that support a claim hides the others.
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
            return unjudged(said)
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
    return replace(
        right,
        claim=replace(right.claim, kind=OF_REFERENCE),
        reason="by the reference it is wrong; it comes from a chunk that does not answer the question",
        chunk_ids=source.chunk_ids,
        quote=source.quote,
        quote_verified=source.quote_verified,
    )


DEFAULT_WEIGHTS: Mapping[str, float] = {
    "faithfulness": 0.4,
    "answer_relevance": 0.3,
    "chunk_precision": 0.3,
}
HIGH = 0.5
"""The score from which chunk precision and faithfulness count as high."""

_SAID = {
    Diagnosis.HEALTHY: "healthy",
    Diagnosis.GENERATION_PROBLEM: "generation problem: the chunks are relevant, and the answer leaves them",
    Diagnosis.RETRIEVAL_NOISE: "retrieval noise: most chunks are irrelevant, and the model copes",
    Diagnosis.RETRIEVAL_FAILURE: "retrieval failure: most chunks are irrelevant, and the model invents",
}


class RagScore(ClaimMetric):
    """Measures a RAG call as a whole: faithfulness, answer relevance and chunk precision in one number.

    score = 0.4 faithfulness + 0.3 answer relevance + 0.3 chunk precision; the weights are configurable and
    must add up to 1. If a part with a weight has no score, there is no RAG score (``missing_part``).

    Diagnosis, with *high* from 0.5 on: chunk precision and faithfulness high: ``healthy``; only chunk
    precision high: ``generation_problem``; only faithfulness high: ``retrieval_noise``; neither:
    ``retrieval_failure``. It is present whenever these two have a score.

    Passes if faithfulness passes and the score is 0.5 or more.

    Details: the three scores by name. The verdicts are those of faithfulness and of the chunks.

    Source: ragtrace's own convention. Look at the parts before you act on the sum.
    """

    name = "rag_score"
    needs = (Part.QUESTION, Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "relevance", "verify", "chunks")
    passes = f"score >= 0.5 and {ClaimMetric.passes}"

    def __init__(
        self, *, weights: Mapping[str, float] | None = None, **options: Unpack[MetricOptions]
    ) -> None:
        BuiltInMetric.__init__(self, **options)  # its parts have the default of the evidence
        self.require_evidence = True
        self.weights = checked_weights(weights or DEFAULT_WEIGHTS)
        self._parts: tuple[BuiltInMetric, ...] = (Faithfulness(), AnswerRelevance(), ChunkPrecision())

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        if self.weights == DEFAULT_WEIGHTS:
            return super().version
        weights = "-".join(f"{self.weights.get(name, 0.0):g}" for name in DEFAULT_WEIGHTS)
        return f"{super().version}-{weights}"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Measure the parts concurrently, and compute their weighted sum."""
        found = await together(part.find(record, steps) for part in self._parts)
        parts = {part.name: finding for part, finding in zip(self._parts, found, strict=True)}
        scores = {name: part.score for name, part in parts.items()}
        diagnosis = diagnose(scores["chunk_precision"], scores["faithfulness"])
        missing = [name for name in self.weights if scores[name] is None]
        return MetricFinding(
            score=None if missing else _weighed(scores, self.weights),
            skip_reason=SkipReason.MISSING_PART if missing else None,
            explanation="; ".join([*_absences(missing, parts), *([_SAID[diagnosis]] if diagnosis else [])]),
            verdicts=parts["faithfulness"].verdicts,
            chunk_verdicts=parts["chunk_precision"].chunk_verdicts,
            details=readings(**scores),
            diagnosis=diagnosis,
            parts=parts,
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Weigh the scores of the parts, counted out of their verdicts."""
        scores = {part.name: part.score_of(finding.parts[part.name]) for part in self._parts}
        return None if any(scores[name] is None for name in self.weights) else _weighed(scores, self.weights)

    def filled(self, finding: MetricFinding, claims: VerdictLabel, chunks: VerdictLabel) -> MetricFinding:
        """Put labels where the judge left verdicts out, in each part its own."""
        is_best = claims is self.good
        parts = {
            part.name: part.filled(finding.parts[part.name], part.good if is_best else part.wrong, chunks)
            for part in self._parts
        }
        return replace(super().filled(finding, claims, chunks), parts=parts)


def diagnose(chunk_precision: float | None, faithfulness: float | None) -> Diagnosis | None:
    """Return where a RAG call fails; ``None`` if a score is missing."""
    if chunk_precision is None or faithfulness is None:
        return None
    if chunk_precision >= HIGH:
        return Diagnosis.HEALTHY if faithfulness >= HIGH else Diagnosis.GENERATION_PROBLEM
    return Diagnosis.RETRIEVAL_NOISE if faithfulness >= HIGH else Diagnosis.RETRIEVAL_FAILURE


def _weighed(scores: Mapping[str, float | None], weights: Mapping[str, float]) -> float:
    weighed = fsum((scores[name] or 0.0) * weight for name, weight in weights.items())
    return min(1.0, weighed)  # weights may exceed 1 by a rounding error


def _absences(missing: list[str], parts: Mapping[str, MetricFinding]) -> list[str]:
    return [f"no {name} ({parts[name].skip_reason}: {parts[name].explanation})" for name in missing]


def checked_weights(weights: Mapping[str, float]) -> Mapping[str, float]:
    """Return the weights that are not 0.

    Raises:
        ConfigError: a part does not exist, or they do not add up to 1.
    """
    if strange := weights.keys() - DEFAULT_WEIGHTS.keys():
        raise ConfigError(f"rag_score has no part {min(strange)!r}: weigh {', '.join(DEFAULT_WEIGHTS)}")
    if not all(0 <= weight <= 1 for weight in weights.values()) or not isclose(fsum(weights.values()), 1):
        raise ConfigError(f"the weights of rag_score are {dict(weights)!r}: give shares that add up to 1")
    return {name: weight for name, weight in weights.items() if weight}


_MOST_CHARS: Final = 500
_MOST_NAME_CHARS: Final = 40


class Criterion(BuiltInMetric):
    """Measures whether the answer meets a criterion, such as "The answer names the next step".

    score = 1 if it does, else 0. The judge sees the question and the answer, not the chunks. All criteria of
    an evaluation share one request. The verdict has the judge's reason, and a quote if it is in the answer.

    Details: ``quotes_unverified``: 1 if the judge's quote was not found in the answer or there is none.
    """

    needs = (Part.ANSWER,)
    uses = ("criteria",)
    good, wrong = VerdictLabel.MET, VerdictLabel.NOT_MET

    def __init__(self, *, name: str, criterion: str, **options: Unpack[MetricOptions]) -> None:
        """Take the criterion, which is part of the version.

        Raises:
            ConfigError: it is empty or too long, or a rule or a prompt cannot be used.
        """
        self.name, self.criterion = name, checked_criterion(criterion, name)
        super().__init__(**options)

    @property
    def version(self) -> str:
        """Changes with the text of the criterion."""
        return f"{super().version}-{hashlib.sha256(self.criterion.encode()).hexdigest()[:8]}"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Ask the judge."""
        verdict = await steps.criterion(self.criterion)
        if verdict.label is VerdictLabel.UNJUDGED:
            return unjudged("criterion unjudged", (verdict,))
        is_met = verdict.label is VerdictLabel.MET
        return MetricFinding(
            score=float(is_met),
            explanation="criterion met" if is_met else "criterion not met",
            verdicts=(verdict,),
            details=readings(quotes_unverified=not verdict.quote_verified),
        )


def checked_criterion(text: object, name: str) -> str:
    """Return the criterion on one line.

    Raises:
        ConfigError: it is no text, empty, or too long.
    """
    line = " ".join(text.split()) if isinstance(text, str) else ""
    if not line:
        raise ConfigError(
            f"the criterion {name!r} is empty: say what the answer must do, such as"
            ' "The answer names the next step"'
        )
    if len(line) > _MOST_CHARS:
        raise ConfigError(
            f"the criterion {name!r} has {len(line):,} characters, of at most {_MOST_CHARS}: ask one thing"
            " that is met or not, and make several criteria of several"
        )
    return line


def criterion_named(given: str) -> tuple[str, str]:
    """Return name and text of ``NAME=TEXT``, or of a text, whose words make the name.

    Raises:
        ConfigError: the text has no word that could be in a name.
    """
    if named := _NAMED.fullmatch(given.strip()):
        return named[1], named[2]
    plain = unicodedata.normalize("NFKD", given).encode("ascii", "ignore").decode().lower()
    slug = "_".join(re.findall(r"[a-z0-9]+", plain))
    if len(slug) > _MOST_NAME_CHARS:
        slug = slug[: _MOST_NAME_CHARS + 1].rpartition("_")[0] or slug[:_MOST_NAME_CHARS]
    if not slug and given.strip():
        raise ConfigError(
            "no name can be made of the criterion's words: write NAME=TEXT, such as next_step=…"
        )
    return (slug if slug[:1].isalpha() else f"criterion_{slug}".rstrip("_")), given


_NAMED: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
