"""Retrieval by ids: recall, reciprocal rank and nDCG of the chunks that people marked. No judge is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import fsum, log2
from typing import ClassVar

from ragtrace.errors import ConfigError
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource
from ragtrace.model import Part, RagRecord, SkipReason

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

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        k: int | None = None,
    ) -> None:
        """``k`` cuts the list of chunks.

        Raises:
            ConfigError: it is no whole number from 1 on.
        """
        super().__init__(
            threshold=threshold, pass_when=pass_when, judge_truncated=judge_truncated, prompts=prompts
        )
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
            explanation=_explain(len(wanted), missing),
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


_NOT_KNOWN = (
    SkipReason.NO_RETRIEVAL,
    SkipReason.NO_CONTENT,
    SkipReason.INCOMPLETE,
    SkipReason.FAILED_CALL,
)
"""Why there may be chunks that the record does not have."""


def _first_ranks(ids: Sequence[str], wanted: Collection[str]) -> list[int]:
    first: dict[str, int] = {}
    for rank, each in enumerate(ids, start=1):
        first.setdefault(each, rank)
    return [rank for each, rank in first.items() if each in wanted]


def _gain(ranks: Sequence[int]) -> float:
    return fsum(1 / log2(rank + 1) for rank in ranks)


def _explain(wanted: int, missing: Sequence[str]) -> str:
    ids = f"{wanted} reference id{'s' if wanted > 1 else ''}"
    if not missing:
        return f"all of {ids} retrieved"
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return f"{len(missing)} of {ids} not retrieved: {', '.join(missing[:_MOST_NAMED])}{more}"
