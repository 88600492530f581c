"""The RAG score: three scores in one number, and a diagnosis of where a call fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import fsum, isclose

from ragtrace.errors import ConfigError
from ragtrace.metrics.answers import AnswerRelevance
from ragtrace.metrics.asking import together
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings
from ragtrace.metrics.faithfulness import ClaimMetric, Faithfulness
from ragtrace.metrics.retrieval import ChunkPrecision
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource
from ragtrace.model import Diagnosis, Part, RagRecord, SkipReason, VerdictLabel

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
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(
            threshold=threshold, pass_when=pass_when, judge_truncated=judge_truncated, prompts=prompts
        )
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
