"""How far people and the judge agree, and averages that people correct.

A random sample of answers is reviewed, and its difference is added to the judge's mean.

The difference estimator (Cochran, Sampling Techniques, 1977, 7.10; with a judge's verdicts as the known
variable it is prediction-powered inference, Angelopoulos et al. 2023): the judge's mean over all answers, and
the mean of *human minus judge* over the reviewed ones. It is unbiased whatever the judge's errors are; the
better the judge, the shorter its interval.

Only answers that were reviewed in random order count, and of these only the ones before the first that was
left out: they are a simple random sample. Reviews of opened or uncertain answers would make the sample worse
than the traffic, so the random queue asks about these answers again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import hypot, sqrt
from typing import Final, NamedTuple

from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import Label, VerdictLabel
from ragtrace.reviews.review import Review, ReviewPick, by_claim, majority
from ragtrace.stats import WeightedMean, agreement_beyond_chance, wilson, wilson_interval

_LEAST_CLAIMS: Final = 20
"""Fewer claims say too little about a judge."""
LABELS: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)


class ReviewAgreement:
    """How the reviews of answers agree with the judge's verdicts, by claim, and with each other."""

    def __init__(self, answers: Iterable[Sequence[Review]]) -> None:
        table: Counter[tuple[VerdictLabel, VerdictLabel]] = Counter()
        names: set[str] = set()
        self.pairs = self.pairs_agreed = 0
        """Pairs of people who labeled the same claim."""
        for reviews in answers:
            names |= {review.reviewer for review in reviews}
            for said in by_claim(reviews).values():
                table[said[0].verdict, majority(said) or VerdictLabel.UNJUDGED] += 1
                for one, other in combinations(said, 2):
                    self.pairs += 1
                    self.pairs_agreed += one.label is other.label
        self.table = table
        """Claims by the judge's verdict and the people's label, undecided ones too."""
        self.reviewers = len(names)
        decided = {pair: number for pair, number in table.items() if VerdictLabel.UNJUDGED not in pair}
        self.decided = sum(decided.values())
        """Claims that the judge and people decided."""
        self.agreed = sum(number for (judge, human), number in decided.items() if judge is human)
        """Those of them that both label alike."""
        self.says_little = self.decided < _LEAST_CLAIMS
        """Whether there are too few claims to judge a judge by."""
        self.interval = wilson_interval(self.agreed, self.decided) if self.decided else None
        """The 95 % interval of the share of agreement (Wilson); ``None`` without a decided claim."""
        self.kappa = agreement_beyond_chance(decided)
        """Cohen's kappa (1960) over the decided claims; ``None`` if chance agreement is complete."""


METRIC: Final = "faithfulness"
"""Claims are reviewed, so this is the metric that reviews correct."""
LEAST: Final = 30
"""Fewer reviewed answers say too little: their interval would be no better than none."""
_WRONG: Final = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)


class ReviewedPair(NamedTuple):
    """One reviewed answer of the random sample."""

    judge: float
    """1 if it passes and 0 if not; or its score."""
    human: float
    weight: float
    """One over the probability with which the answer was sampled for the judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedMean:
    """A share of passing answers or a mean score, corrected by reviews."""

    mean: float
    low: float
    """The ends of the 95 % confidence interval."""
    high: float
    reviewed: int
    """Answers in the random sample."""


def random_prefix(
    in_order: Iterable[tuple[float, AnswerSummary]],
    reviewed: Mapping[AnswerKey, Sequence[Review]],
    *,
    gone: Collection[AnswerKey] = (),
    scores: bool = False,
) -> Sequence[ReviewedPair]:
    """Return the reviewed answers of a random order, up to the first one that nobody reviewed.

    An answer without a decided outcome of the judge, or of which people cannot tell, is passed over: it has
    no place in the judge's mean either. So is one whose content is ``gone``: that depends on its age, not on
    its verdict.

    Args:
        in_order: Answers with their places in the random order.
        reviewed: The reviews by answer.
        gone: Answers that cannot be read any more.
        scores: Compare scores, not who passes: people's is the share of supported claims.
    """
    pairs = []
    for _, answer in in_order:
        if answer.key in gone:
            continue
        said = [review for review in reviewed.get(answer.key, ()) if review.picked is ReviewPick.RANDOM]
        if not said:
            break
        human = score(said) if scores else passes(said)
        metric = answer.metric(METRIC)
        if human is None or metric is None or metric.score is None or answer.probability is None:
            continue
        judge = metric.score if scores else float(metric.label is Label.PASS)
        pairs.append(ReviewedPair(judge=judge, human=float(human), weight=1 / answer.probability))
    return pairs


def passes(reviews: Sequence[Review]) -> bool | None:
    """Say whether an answer passes by its reviews: no claim is wrong; ``None`` if none is decided."""
    labels = _labels(reviews)
    return None if not labels else not any(label in _WRONG for label in labels)


def score(reviews: Sequence[Review]) -> float | None:
    """Return the share of the decided claims that people find supported; ``None`` if none is decided."""
    labels = _labels(reviews)
    return None if not labels else sum(label not in _WRONG for label in labels) / len(labels)


def _labels(reviews: Sequence[Review]) -> Sequence[VerdictLabel]:
    return [label for said in by_claim(reviews).values() if (label := majority(said))]


def corrected_mean(judged: WeightedMean, pairs: Sequence[ReviewedPair]) -> CorrectedMean | None:
    """Correct the judge's share of passing answers, or its mean score; ``None`` with fewer than 30 pairs.

    The interval of the judge's share is part of the result's.
    """
    if len(pairs) < LEAST:
        return None
    whole = sum(pair.weight for pair in pairs)
    effective = whole**2 / sum(pair.weight**2 for pair in pairs)  # Kish 1965
    worse = sum(pair.weight * max(0.0, pair.judge - pair.human) for pair in pairs) / whole
    better = sum(pair.weight * max(0.0, pair.human - pair.judge) for pair in pairs) / whole
    down, up = _halves(better, worse, effective)
    mean = judged.mean + better - worse
    return CorrectedMean(
        mean=min(1.0, max(0.0, mean)),
        low=max(0.0, mean - hypot(down, judged.mean - judged.low)),
        high=min(1.0, mean + hypot(up, judged.high - judged.mean)),
        reviewed=len(pairs),
    )


def _halves(better: float, worse: float, size: float) -> tuple[float, float]:
    """Return how far the interval of ``better - worse`` reaches down and up.

    Two shares of one sample, by the method of variance estimates recovery (Zou and Donner 2008) from their
    Wilson intervals, with their correlation. It is true for few and rare differences, too. Differences of
    scores vary less than shares with the same means, so for them it is rather too long.
    """
    low_of_better, high_of_better = wilson(better, size)
    low_of_worse, high_of_worse = wilson(worse, size)
    both = (1 - better) * (1 - worse)
    correlation = -sqrt(better * worse / both) if both else -1.0

    def joined(one: float, other: float) -> float:
        return sqrt(max(0.0, one**2 + other**2 - 2 * correlation * one * other))

    down = joined(better - low_of_better, high_of_worse - worse)
    return down, joined(high_of_better - better, worse - low_of_worse)
