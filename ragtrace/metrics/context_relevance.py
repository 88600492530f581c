"""Context relevance: how relevant the retrieved chunks are on average, or the share of relevant sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ragtrace.errors import ConfigError
from ragtrace.judge_steps import SentenceGrading
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings, tally
from ragtrace.metrics.chunk_precision import graded_chunks
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource
from ragtrace.model import Intermediate, Part, RagRecord, SkipReason, VerdictCounts, VerdictLabel
from ragtrace.scoring import mean_relevance, relevant_share, serving_share

_CHUNK, _SENTENCE = _UNITS = ("chunk", "sentence")


class ContextRelevance(BuiltInMetric):
    """Measures how relevant the retrieved chunks are to the question on average.

    score = (mean grade of the judged chunks) / 2, with the grades 2 (holds a part of what the answer needs),
    1 (background) and 0 (of no use): (2 R + P) / (2 (k - U)). Every chunk weighs the same, long or short.
    With ``unit="sentence"``, score = R / (n - U): of the n sentences of all chunks, R have grade 2.

    Details: ``coverage`` = (k - U) / k, ``grades_rejected``, ``with_reference``: whether the judge saw a
    reference answer. By sentence also ``sentences`` = n, ``relevant_sentences`` = R, ``lenient`` =
    (R + P) / (n - U) and ``by_chunk``: the score by chunk, if each chunk has the best grade of its sentences.

    Source: the 0, 1, 2 scale of RAGAS' context relevance (NVIDIA), a grade a chunk instead of one for all. By
    sentence: the context relevance of RAGAS' paper (Es et al. 2023), in which the judge copies the sentences.
    """

    name = "context_relevance"
    needs = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        unit: str = _CHUNK,
    ) -> None:
        """``unit`` says what is graded: each ``chunk``, or each ``sentence`` of the chunks.

        Raises:
            ConfigError: an option has another value.
        """
        super().__init__(
            threshold=threshold, pass_when=pass_when, judge_truncated=judge_truncated, prompts=prompts
        )
        if unit not in _UNITS:
            raise ConfigError(f"{self.name}: `unit` is {' or '.join(_UNITS)}, not {unit!r}")
        self.unit = unit

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        return super().version if self.unit == _CHUNK else f"{super().version}-{self.unit}"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Average the grades of chunks, or count the relevant sentences."""
        if self.unit == _SENTENCE:
            return _by_sentence(await steps.sentences())
        found = await graded_chunks(steps)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(mean_relevance(found.counts))

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the score out of the grades."""
        if finding.intermediate:
            return relevant_share(VerdictCounts.of(finding.intermediate.sentences))
        return mean_relevance(VerdictCounts.of(finding.chunk_verdicts))

    def filled(self, finding: MetricFinding, claims: VerdictLabel, chunks: VerdictLabel) -> MetricFinding:
        """Fill in labels for verdicts that the judge left out, also those on sentences."""
        filled = super().filled(finding, claims, chunks)
        if not (made := finding.intermediate):
            return filled
        sentences = tuple(replace(s, label=chunks) if s.omitted else s for s in made.sentences)
        return replace(filled, intermediate=replace(made, sentences=sentences))


def _by_sentence(found: SentenceGrading) -> MetricFinding:
    counts = VerdictCounts.of(found.grades)
    made = Intermediate(sentences=found.grades)
    explanation = _explain(counts, found.total)
    if not counts.judged:
        return MetricFinding(
            skip_reason=SkipReason.ALL_UNJUDGED,
            explanation=explanation,
            chunk_verdicts=found.chunks,
            intermediate=made,
        )
    return MetricFinding(
        score=relevant_share(counts),
        explanation=explanation,
        chunk_verdicts=found.chunks,
        intermediate=made,
        details=readings(
            sentences=found.total,
            relevant_sentences=counts.relevant,
            lenient=serving_share(counts),
            coverage=counts.judged / found.total,
            by_chunk=mean_relevance(VerdictCounts.of(found.chunks)),
            grades_rejected=found.rejected,
            with_reference=found.with_reference,
        ),
    )


def _explain(counts: VerdictCounts, total: int) -> str:
    wrong = {
        "irrelevant": counts.irrelevant,
        "partly relevant": counts.partly_relevant,
        "unjudged": total - counts.judged,
    }
    return tally(total, "sentence", "relevant", wrong) if total else "the chunks hold no sentence"
