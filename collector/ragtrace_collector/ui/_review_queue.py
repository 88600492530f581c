"""Which answer a person is asked about next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.answers.index.reading import AnswerIndex
from ragtrace.answers.port import AnswerFilter, MetricTrend, SortBy, TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import Label
from ragtrace.reviews.averages import CorrectedMean, corrected_mean, random_prefix
from ragtrace.reviews.file import ReviewFile
from ragtrace.reviews.review import Review, ReviewPick

_AT_ONCE: Final = 500
_MOST_SEEN: Final = 20_000
_RANDOM_AT_ONCE: Final = 100
_MOST_RANDOM: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOrder:
    """A list of answers that people go through."""

    chosen: AnswerFilter
    sort: SortBy = SortBy.DOUBT


async def next_answer(
    index: AnswerIndex, queue: QueueOrder, pick: ReviewPick, done: Collection[AnswerKey]
) -> AnswerSummary | None:
    """Return the next answer with claims that nobody has reviewed; ``None`` if the queue is empty."""
    if pick is ReviewPick.RANDOM:
        async for _, answer in random_answers(index, queue.chosen.scope):
            if answer.key not in done:
                return answer
        return None
    after, seen = None, 0
    while seen < _MOST_SEEN:
        page = await index.page(queue.chosen, sort=queue.sort, after=after, limit=_AT_ONCE)
        for answer in page.answers:
            if answer.claims.total and answer.key not in done:
                return answer
        after, seen = page.next, seen + _AT_ONCE
        if after is None:
            return None
    return None


async def random_answers(
    index: AnswerIndex, scope: TrafficScope
) -> AsyncIterator[tuple[float, AnswerSummary]]:
    """Yield answers with a decided outcome in random order, a few thousand at most."""
    after, seen = -1.0, 0
    while seen < _MOST_RANDOM:
        part = await index.random_order(scope, after=after, limit=_RANDOM_AT_ONCE)
        for position, answer in part:
            if answer.label in (Label.PASS, Label.FAIL) and answer.claims.total:
                yield position, answer
        if len(part) < _RANDOM_AT_ONCE:
            return
        after, seen = part[-1][0], seen + len(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedMetric:
    """Faithfulness as people correct it."""

    passing: CorrectedMean | None = None
    """The share that passes; ``None`` with too few answers."""
    mean: CorrectedMean | None = None
    sample: int = 0
    """Answers of the random sample that count."""


async def corrected_metric(
    index: AnswerIndex, scope: TrafficScope, reviews: ReviewFile, trend: MetricTrend
) -> CorrectedMetric:
    """Correct the whole of a trend of the scope by the reviews of its random answers."""
    reviewed = await reviews.reviewed(tenant=scope.tenant)
    if not any(map(at_random, reviewed.values())):
        return CorrectedMetric()
    gone = await reviews.passed_over(tenant=scope.tenant)
    in_order = []
    async for position, answer in random_answers(index, scope):
        in_order.append((position, answer))
        if answer.key not in gone and not at_random(reviewed.get(answer.key, ())):
            break
    passing, scores = (random_prefix(in_order, reviewed, gone=gone, scores=which) for which in (False, True))
    whole = trend.whole
    return CorrectedMetric(
        passing=corrected_mean(whole.passing, passing) if whole.passing else None,
        mean=corrected_mean(whole.mean, scores) if whole.mean else None,
        sample=len(passing),
    )


def at_random(reviews: Sequence[Review]) -> bool:
    """Whether somebody was asked about the answer at random."""
    return any(review.picked is ReviewPick.RANDOM for review in reviews)
