"""Which answer a person is asked about next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.answers.port import AnswerFilter, AnswerIndex, MetricTrend, TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import Label
from ragtrace.reviews.averages import CorrectedMean, corrected_mean, random_prefix
from ragtrace.reviews.review import Review, ReviewPick, ReviewStore

_CANDIDATES: Final = 500
"""The newest answers, among which the most uncertain ones come first."""
_RANDOM_AT_ONCE: Final = 100
_MOST_RANDOM: Final = 5_000
_MIDDLE: Final = 0.5


async def next_answer(
    index: AnswerIndex, scope: TrafficScope, pick: ReviewPick, done: Collection[AnswerKey]
) -> AnswerSummary | None:
    """Return the next answer that nobody has reviewed; ``None`` if the queue is empty."""
    if pick is ReviewPick.RANDOM:
        async for _, answer in random_answers(index, scope):
            if answer.key not in done:
                return answer
        return None
    return next((answer for answer in await uncertain_answers(index, scope) if answer.key not in done), None)


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


async def uncertain_answers(index: AnswerIndex, scope: TrafficScope) -> Sequence[AnswerSummary]:
    """Return the newest answers, those first about which the verdicts are least sure.

    First where evaluators disagree, then by the share of claims that are undecided, and by how near to the
    middle a score is.
    """
    page = await index.page(AnswerFilter(scope=scope), limit=_CANDIDATES)
    labels: defaultdict[AnswerKey, set[Label]] = defaultdict(set)
    for answer in page.answers:
        if answer.label in (Label.PASS, Label.FAIL):
            labels[answer.key].add(answer.label)
    asked = {answer.key: answer for answer in page.answers if answer.claims.total}
    return sorted(
        asked.values(), key=lambda answer: (-len(labels[answer.key]), -_doubt(answer), -answer.time_ns)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedMetric:
    """Faithfulness as people correct it."""

    passing: CorrectedMean | None = None
    """The share that passes; ``None`` with too few answers."""
    mean: CorrectedMean | None = None
    sample: int = 0
    """Answers of the random sample that count."""


async def corrected_metric(
    index: AnswerIndex, scope: TrafficScope, reviews: ReviewStore, trend: MetricTrend
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


def _doubt(answer: AnswerSummary) -> float:
    undecided = answer.claims.unjudged / answer.claims.total
    scores = [metric.score for metric in answer.metrics if metric.score is not None]
    nearness = max((_MIDDLE - abs(score - _MIDDLE) for score in scores), default=0.0)
    return undecided + nearness
