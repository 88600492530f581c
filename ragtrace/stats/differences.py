"""How two means differ, with intervals: in pairs of the same answers, and in two independent samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, sqrt
from typing import NamedTuple, TypeVar

from ragtrace.stats.means import Z_95, WeightedMean

LabelT = TypeVar("LabelT", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The estimated mean of a second sample minus that of the first."""

    first: float
    """The first mean."""
    second: float
    low: float
    """The ends of the 95 % confidence interval of the difference."""
    high: float
    records: tuple[int, int]
    """The records of each sample in the estimate; of pairs, twice their number."""
    left_out: int = 0
    """Number of pairs without a probability."""

    @property
    def change(self) -> float:
        """The second mean minus the first."""
        return self.second - self.first

    @property
    def is_chance(self) -> bool:
        """Whether chance alone may explain it: the interval holds 0."""
        return self.low <= 0 <= self.high


def difference_of(newer: WeightedMean, older: WeightedMean) -> Difference:
    """Compare the means of two independent samples.

    The interval is made of those of the two means (Newcombe 1998, *Interval estimation for the
    difference between independent proportions*, method 10).
    """
    change = newer.mean - older.mean
    below = sqrt((newer.mean - newer.low) ** 2 + (older.high - older.mean) ** 2)
    above = sqrt((newer.high - newer.mean) ** 2 + (older.mean - older.low) ** 2)
    return Difference(
        first=older.mean,
        second=newer.mean,
        low=max(-1.0, change - below),
        high=min(1.0, change + above),
        records=(older.records, newer.records),
    )


class Pair(NamedTuple):
    """Two values in [0, 1] of one record."""

    first: float
    second: float
    probability: float | None
    """With which both were sampled; ``None`` if unknown."""
    cluster: str
    """Such as the trace: what is sampled together."""


def paired_difference(found: Iterable[Pair]) -> Difference | None:
    """Estimate a mean difference from pairs with different sampling probabilities; ``None`` without pairs.

    It is the adjusted Wald interval for paired proportions (Bonett and Price 2012): one pair with the
    difference 1 and one with -1 are added, so that equal pairs are no certainty. For scores, the added pairs
    differ as much as those that differ (by the root mean square, with one pair of difference 1 among them).
    The variance is linearized over clusters, weights are one over the probability. ``tests/statistics``
    measures how often it holds the truth.

    Raises:
        ValueError: a value or probability is out of range.
    """
    pairs = tuple(found)
    counted = [pair for pair in pairs if pair.probability is not None]
    for pair in counted:
        if not (0 <= pair.first <= 1 and 0 <= pair.second <= 1 and 0 < (pair.probability or 0) <= 1):
            raise ValueError(f"{pair.first} and {pair.second} with {pair.probability}: all are at most 1")
    if not counted:
        return None
    weights = [1 / (pair.probability or 1.0) for pair in counted]
    first, second = (
        sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
        for values in ([pair.first for pair in counted], [pair.second for pair in counted])
    )
    low, high = _adjusted_wald(counted, weights, second - first)
    return Difference(
        first=first,
        second=second,
        low=low,
        high=high,
        records=(len(counted), len(counted)),
        left_out=len(pairs) - len(counted),
    )


def _adjusted_wald(pairs: Sequence[Pair], weights: Sequence[float], mean: float) -> tuple[float, float]:
    of_clusters: dict[str, float] = defaultdict(float)
    residuals: dict[str, float] = defaultdict(float)
    apart = squares = 0.0
    for each, weight in zip(pairs, weights, strict=True):
        of_clusters[each.cluster] += weight
        residuals[each.cluster] += weight * (each.second - each.first - mean)
        apart += weight * (each.second != each.first)
        squares += weight * (each.second - each.first) ** 2
    total = sum(weights)
    effective = total**2 / sum(weight**2 for weight in of_clusters.values())
    variance = effective * sum(residual**2 for residual in residuals.values()) / total**2
    added = (effective * squares / total + 1) / (effective * apart / total + 1)
    number = effective + 2
    center = mean * effective / number
    spread = (effective * (variance + mean**2) + 2 * added) / number - center**2
    half = Z_95 * sqrt(spread / number)
    return max(-1.0, center - half), min(1.0, center + half)


def sign_test(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of two counts under equality (McNemar 1947, exact)."""
    number, fewer = only_first + only_second, min(only_first, only_second)
    ways = (lgamma(number + 1) - lgamma(each + 1) - lgamma(number - each + 1) for each in range(fewer + 1))
    return min(1.0, 2 * sum(exp(way - number * log(2)) for way in ways))


def agreement_beyond_chance(counts: Mapping[tuple[LabelT, LabelT], int]) -> float | None:
    """Return Cohen's kappa (1960) of pairs of labels by number; ``None`` if chance agreement is complete."""
    total = sum(counts.values())
    agreed = sum(number for (one, other), number in counts.items() if one == other)
    first, second = Counter[LabelT](), Counter[LabelT]()
    for (one, other), number in counts.items():
        first[one] += number
        second[other] += number
    chance = sum(number * second[label] for label, number in first.items()) / (total**2 or 1)
    return None if chance == 1 or not total else (agreed / total - chance) / (1 - chance)
