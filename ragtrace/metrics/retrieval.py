"""Metrics of the retrieval: of graded chunks and sentences, of a reference, and of the ids that people
marked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, log2
from typing import ClassVar, Unpack

from ragtrace.errors import ConfigError
from ragtrace.judge_steps import Grading
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, MetricOptions, readings, tally
from ragtrace.metrics.faithfulness import explain_support
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    ChunkVerdict,
    Part,
    RagRecord,
    SkipReason,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.scoring.formulas import (
    average_precision,
    coverage,
    lower_bound,
    mean_relevance,
    relevant_share,
    serving_share,
    strict_faithfulness,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedChunks:
    """The result of step C, with at least one decided chunk."""

    grading: Grading
    counts: VerdictCounts

    @property
    def details(self) -> Mapping[str, float]:
        """The details that these metrics share."""
        return readings(
            coverage=coverage(self.counts),
            grades_rejected=self.grading.rejected,
            with_reference=self.grading.with_reference,
        )

    def finding(self, score: float | None, **more: float | None) -> MetricFinding:
        """Return a finding with the score and further readings."""
        return MetricFinding(
            score=score,
            explanation=_explain_grades(self.counts),
            chunk_verdicts=self.grading.verdicts,
            details={**readings(**more), **self.details},
        )


def useful(verdicts: Iterable[ChunkVerdict]) -> tuple[bool, ...]:
    """Return whether each judged chunk is relevant, by rank."""
    judged = (verdict.label for verdict in verdicts if verdict.label is not VerdictLabel.UNJUDGED)
    return tuple(label is VerdictLabel.RELEVANT for label in judged)


async def graded_chunks(steps: StepSession, *, by_answer: bool = False) -> GradedChunks | MetricFinding:
    """Return the chunks with their grades, or a finding if there is nothing to count.

    With ``by_answer``, they are graded by what the answer states in place of a reference.
    """
    grading = await (steps.chunks_by_answer() if by_answer else steps.chunks())
    counts = VerdictCounts.of(grading.verdicts)
    if counts.judged:
        return GradedChunks(grading=grading, counts=counts)
    return MetricFinding(
        skip_reason=SkipReason.ALL_UNJUDGED,
        explanation=_explain_grades(counts),
        chunk_verdicts=grading.verdicts,
    )


def _explain_grades(counts: VerdictCounts) -> str:
    wrong = {
        "irrelevant": counts.irrelevant,
        "partly relevant": counts.partly_relevant,
        "unjudged": counts.unjudged,
    }
    return tally(counts.total, "chunk", "relevant", wrong)


class ChunkPrecision(BuiltInMetric):
    """Measures the share of the retrieved chunks that are relevant to the question, in any order.

    score = R / (k - U): of k chunks, R hold a part of what the answer needs (grade 2), P are background
    (grade 1), I are of no use (grade 0) and U unjudged.

    Details: ``lenient`` = (R + P) / (k - U), ``coverage`` = (k - U) / k, ``grades_rejected``,
    ``with_reference``: whether the judge saw a reference answer.

    Source: rag_evals' chunk precision; grade 1 counts as no, as in TREC's deep learning track.
    """

    name = "chunk_precision"
    needs = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the relevant chunks."""
        found = await graded_chunks(steps)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(relevant_share(found.counts), lenient=serving_share(found.counts))

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the grades."""
        return relevant_share(VerdictCounts.of(finding.chunk_verdicts))


_REFERENCE, _ANSWER = _AGAINST = ("reference", "answer")


class ContextPrecision(BuiltInMetric):
    """Measures whether the relevant chunks rank before the others: average precision over the ranks.

    score = (sum of P@k over the ranks k of relevant chunks) / (number of relevant chunks), where P@k is the
    share of relevant chunks among the first k; 0 if chunks were judged and none is relevant. Relevant
    means grade 2 of 0, 1, 2. Unjudged chunks are left out of the ranking and reported. If the record has a
    reference answer, the judge sees it and grades what the reference needs (``with_reference`` = 1).

    With ``against="answer"``, the judge grades by what the answer states in place of a reference: whether the
    chunks were useful for it.

    Details: ``precision``: the plain share of relevant chunks, ``coverage``: share of chunks that were
    judged, ``grades_rejected``, ``with_reference``.

    Source: average precision as in TREC; RAGAS' and DeepEval's context precision, without the 1e-10; by the
    answer as RAGAS' context utilization.
    """

    name = "context_precision"
    needs: tuple[Part, ...] = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    def __init__(self, *, against: str = _REFERENCE, **options: Unpack[MetricOptions]) -> None:
        """``against`` says what chunks are graded by: the ``reference``, if there is one, or the ``answer``.

        Raises:
            ConfigError: an option has another value.
        """
        super().__init__(**options)
        if against not in _AGAINST:
            raise ConfigError(f"{self.name}: `against` is {' or '.join(_AGAINST)}, not {against!r}")
        self.against = against
        if against == _ANSWER:
            self.needs = (*type(self).needs, Part.ANSWER)

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        return super().version if self.against == _REFERENCE else f"{super().version}-{self.against}"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Rank the relevant chunks."""
        found = await graded_chunks(steps, by_answer=self.against == _ANSWER)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(
            average_precision(useful(found.grading.verdicts)), precision=relevant_share(found.counts)
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the grades."""
        return average_precision(useful(finding.chunk_verdicts))


class ContextRelevance(BuiltInMetric):
    """Measures how relevant the retrieved chunks are to the question on average.

    score = (mean grade of the judged chunks) / 2, with the grades 2 (holds a part of what the answer needs),
    1 (background) and 0 (of no use): (2 R + P) / (2 (k - U)). Every chunk weighs the same, long or short.

    Details: ``coverage`` = (k - U) / k, ``grades_rejected``, ``with_reference``: whether the judge saw a
    reference answer.

    Source: the 0, 1, 2 scale of RAGAS' context relevance (NVIDIA), a grade a chunk instead of one for all.
    """

    name = "context_relevance"
    needs = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Average the grades of the chunks."""
        found = await graded_chunks(steps)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(mean_relevance(found.counts))

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the grades."""
        return mean_relevance(VerdictCounts.of(finding.chunk_verdicts))


class ContextRecall(BuiltInMetric):
    """Measures the share of a reference answer's sentences that the chunks support.

    score = S / (n - U): of the n sentences of the reference, S are supported and U unjudged. Code
    splits and numbers the sentences, so the judge cannot change the denominator.

    Details: ``lower_bound`` = S / n, ``coverage`` = (n - U) / n, ``contradicted_share`` = C / (n - U),
    ``verdicts_rejected`` and, with canary claims, ``sentinels_passed``.

    Source: RAGAS' context recall, in which the judge splits and judges in one step.
    """

    name = "context_recall"
    needs = (Part.CONTEXT, Part.REFERENCE)
    uses = ("recall",)

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the supported sentences of the reference."""
        found = await steps.recall()
        counts = VerdictCounts.of(found.verdicts)
        if not counts.judged:
            reason = SkipReason.ALL_UNJUDGED if counts.total else SkipReason.NO_CLAIMS
            said = (
                explain_support(found.verdicts, "sentence")
                if counts.total
                else "the reference holds no sentence"
            )
            return MetricFinding(skip_reason=reason, explanation=said, verdicts=found.verdicts)
        return MetricFinding(
            score=strict_faithfulness(counts),
            explanation=f"of the reference: {explain_support(found.verdicts, 'sentence')}",
            verdicts=found.verdicts,
            details=readings(
                lower_bound=lower_bound(counts),
                coverage=coverage(counts),
                contradicted_share=counts.contradicted / counts.judged,
                verdicts_rejected=found.rejected,
                canaries_passed=found.canaries_passed or None,
            ),
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the supported sentences of the reference."""
        return strict_faithfulness(VerdictCounts.of(finding.verdicts))


_MOST_NAMED = 5


class RetrievalRecall(BuiltInMetric):
    """Measures the share of the reference chunks among the first k retrieved ones, by their ids.

    score = |reference ids among the first k| / |reference ids|; k is an option, by default all. An id that
    is retrieved twice counts once, at its first rank. A retrieval that found nothing scores 0.

    Details: ``precision`` = found / retrieved, ``reciprocal_rank``, ``ndcg``.

    Source: recall, reciprocal rank and nDCG with binary gains (Järvelin and Kekäläinen 2002) as in TREC.
    """

    name = "retrieval_recall"
    measures: ClassVar[str] = "recall"

    def __init__(self, *, k: int | None = None, **options: Unpack[MetricOptions]) -> None:
        """``k`` cuts the list of chunks.

        Raises:
            ConfigError: it is no whole number from 1 on.
        """
        super().__init__(**options)
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
            raise ConfigError(f"{self.name}: `k` is a whole number from 1 on, not {k!r}")
        self.k = k

    @property
    def version(self) -> str:
        """Changes whenever the same ids could give another score."""
        return super().version if self.k is None else f"{super().version}-at-{self.k}"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Look up the ids."""
        wanted = frozenset(record.reference_chunk_ids)
        if not wanted:
            return MetricFinding(
                skip_reason=SkipReason.NO_REFERENCE, explanation="the record has no reference_chunk_ids"
            )
        gap = record.gap(Part.CONTEXT)
        if gap and gap.reason in _NOT_KNOWN and not (record.chunks and gap.reason is SkipReason.NO_CONTENT):
            return MetricFinding(skip_reason=gap.reason, explanation=gap.detail)
        in_order = [chunk.id for chunk in sorted(record.chunks, key=lambda chunk: chunk.rank)][: self.k]
        ranks = _first_ranks(in_order, wanted)
        scores = {
            "recall": len(ranks) / len(wanted),
            "reciprocal_rank": 1 / ranks[0] if ranks else 0.0,
            "ndcg": _gain(ranks) / _gain(range(1, min(len(wanted), self.k or len(wanted)) + 1)),
        }
        missing = [each for each in dict.fromkeys(record.reference_chunk_ids) if each not in in_order]
        return MetricFinding(
            score=scores.pop(self.measures),
            explanation=_explain_ids(len(wanted), missing),
            details=readings(**scores, precision=len(ranks) / len(in_order) if in_order else None),
        )


class RetrievalReciprocalRank(RetrievalRecall):
    """Measures how early the first reference chunk comes: 1 / its rank, 0 without any; the mean is MRR."""

    name = "retrieval_mrr"
    measures = "reciprocal_rank"


class RetrievalNdcg(RetrievalRecall):
    """Measures how early the reference chunks come: nDCG, the sum of 1 / log2(rank + 1) by the best sum."""

    name = "retrieval_ndcg"
    measures = "ndcg"


_NOT_KNOWN = (SkipReason.NO_RETRIEVAL, SkipReason.NO_CONTENT, SkipReason.INCOMPLETE, SkipReason.FAILED_CALL)
"""Why there may be chunks that the record does not have."""


def _first_ranks(ids: Sequence[str], wanted: Collection[str]) -> list[int]:
    first: dict[str, int] = {}
    for rank, each in enumerate(ids, start=1):
        first.setdefault(each, rank)
    return [rank for each, rank in first.items() if each in wanted]


def _gain(ranks: Sequence[int]) -> float:
    return fsum(1 / log2(rank + 1) for rank in ranks)


def _explain_ids(wanted: int, missing: Sequence[str]) -> str:
    ids = f"{wanted} reference id{'s' if wanted > 1 else ''}"
    if not missing:
        return f"all of {ids} retrieved"
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return f"{len(missing)} of {ids} not retrieved: {', '.join(missing[:_MOST_NAMED])}{more}"
