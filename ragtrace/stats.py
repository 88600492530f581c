"""Honest numbers from small samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from typing import Final, NamedTuple

__all__ = [
    "Weighed",
    "weighted_mean",
]

_Z_95: Final = 1.959963984540054


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion (Wilson 1927, score interval).

    Raises:
        ValueError: there are no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} successes of {trials} trials have no proportion")
    return _wilson(successes / trials, trials)


def _wilson(share: float, trials: float) -> tuple[float, float]:
    z2 = _Z_95**2
    centre = share + z2 / (2 * trials)
    half = _Z_95 * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    scale = 1 + z2 / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


class Weighed(NamedTuple):
    """A value in [0, 1] that was found in a sample."""

    value: float
    probability: float | None
    """With which such a record comes into the sample (``ragtrace.sample.probability``); ``None`` where nobody
    can know."""
    cluster: str
    """The trace: its answers come into the sample together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedMean:
    """What a sample says about the mean of everything that it was drawn from."""

    mean: float
    low: float
    """The ends of the 95 % confidence interval."""
    high: float
    records: int
    left_out: int
    """Records without a probability: they stand for nothing but themselves."""
    effective: float
    """How many records of an even sample would say as much."""


def weighted_mean(found: Iterable[Weighed]) -> WeightedMean | None:
    """Estimate a mean from records that were kept with different probabilities; ``None`` if there are none.

    Each record stands for ``1 / probability`` of its kind (Horvitz and Thompson 1952, in Hájek's ratio form).
    The interval is Wilson's for the effective number of records: Kish's, or less where the scores of heavy
    records differ (the linearised variance over clusters). It is never too short for values in [0, 1].

    Raises:
        ValueError: a value or probability is out of range.
    """
    running = RunningMean()
    for each in sorted(found, key=lambda each: each.cluster):
        running.add(each)
    return running.estimate()


class RunningMean:
    """The `weighted_mean` of records that come one by one, in constant memory.

    The records of a cluster have to follow one another: one that comes later counts as a cluster of its own.
    """

    def __init__(self) -> None:
        self._records = self._left_out = 0
        self._origin = 0.0  # values are counted from the first one: differences of like values stay exact
        self._whole = _Moments()
        self._cluster: str | None = None
        self._weight = self._sum = 0.0

    def add(self, each: Weighed) -> None:
        """Count a record in.

        Raises:
            ValueError: its value or probability is out of range.
        """
        if each.probability is None:
            self._left_out += 1
            return
        if not (0 <= each.value <= 1 and 0 < each.probability <= 1):
            raise ValueError(f"{each.value} with probability {each.probability}: both are at most 1")
        if each.cluster != self._cluster:
            self._whole = self._whole.plus(self._weight, self._sum)
            self._cluster, self._weight, self._sum = each.cluster, 0.0, 0.0
        if not self._records:
            self._origin = each.value
        self._records += 1
        self._weight += 1 / each.probability
        self._sum += (each.value - self._origin) / each.probability

    def estimate(self) -> WeightedMean | None:
        """Return what the records so far say; ``None`` if there are none."""
        if not self._records:
            return None
        whole = self._whole.plus(self._weight, self._sum)
        mean = min(1.0, max(0.0, self._origin + whole.sum / whole.weight))
        effective = whole.effective(mean * (1 - mean))
        low, high = _wilson(mean, effective)
        return WeightedMean(
            mean=mean,
            low=low,
            high=high,
            records=self._records,
            left_out=self._left_out,
            effective=effective,
        )


class _Moments(NamedTuple):
    """Sums over clusters of their weights and weighted values, and of the products of these."""

    weight: float = 0.0
    sum: float = 0.0
    weight_weight: float = 0.0
    weight_sum: float = 0.0
    sum_sum: float = 0.0

    def plus(self, weight: float, total: float) -> _Moments:
        return _Moments(
            self.weight + weight,
            self.sum + total,
            self.weight_weight + weight**2,
            self.weight_sum + weight * total,
            self.sum_sum + total**2,
        )

    def effective(self, even: float) -> float:
        kish, mean = self.weight**2 / self.weight_weight, self.sum / self.weight
        # the squares of the clusters' residuals, each its weighted values less its weight times the mean
        squares = self.sum_sum - 2 * mean * self.weight_sum + mean**2 * self.weight_weight
        variance = max(0.0, squares) / self.weight**2
        return min(kish, even / variance) if even and variance else kish


class RatioTotal(NamedTuple):
    """What a sample says about a sum over everything that it was drawn from."""

    low: float
    """The ends of the 95 % confidence interval."""
    likely: float
    high: float


def ratio_total(pairs: Sequence[tuple[float, float]], *, population: int, size: float) -> RatioTotal:
    """Estimate a sum of amounts from some of them, where a size that goes with the amount is known of all.

    The ratio estimator with the finite population correction (Cochran 1977, *Sampling Techniques*, 2.6 and
    chapter 6), with Student's t. What was sampled is known, so that the lower end is no less than that. One
    observation is added to the spread that is three times what its size says, in the spirit of Agresti and
    Coull (1998): a small sample that happens to be even does not say that everything is. The upper end is
    that of the logarithm's interval, which leans to the side to which such sums are skewed.

    Args:
        pairs: Size and amount of each in the sample, which was drawn by chance without replacement.
        population: How many there are.
        size: The sum of all sizes.

    Raises:
        ValueError: there is no sample, it is larger than the population, or all its sizes are 0.
    """
    number, sampled = len(pairs), sum(each for each, _ in pairs)
    if not 0 < number <= population or sampled <= 0:
        raise ValueError(f"{number} of {population}, of size {sampled}, say nothing about the sum")
    known = sum(amount for _, amount in pairs)
    if number == population or not known:
        return RatioTotal(known, known, known)
    ratio = known / sampled
    likely = known + ratio * max(0.0, size - sampled)
    residuals = sum((amount - ratio * each) ** 2 for each, amount in pairs) + (2 * known / number) ** 2
    variance = residuals / number / (number + 1) * (1 - number / population)
    share = _student_t_95(number) * sqrt(variance) / (known / number)
    return RatioTotal(max(known, likely * (1 - share)), likely, likely * exp(share))


def _student_t_95(freedom: int) -> float:
    """Return the 97.5 % point of Student's t (Abramowitz and Stegun 26.7.5: to 0.1 % from 3 on)."""
    z, n = _Z_95, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4
