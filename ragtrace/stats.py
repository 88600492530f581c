"""Estimates with confidence intervals from small samples."""

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
    return wilson(successes / trials, trials)


def wilson(share: float, trials: float) -> tuple[float, float]:
    """Return the same interval for a share of an effective number of trials."""
    z2 = _Z_95**2
    center = share + z2 / (2 * trials)
    half = _Z_95 * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    scale = 1 + z2 / trials
    return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)


class Weighed(NamedTuple):
    """A sampled value in [0, 1] with its sampling probability."""

    value: float
    probability: float | None
    """The record's sampling probability (``ragtrace.sample.probability``); ``None`` if unknown."""
    cluster: str
    """The trace id: answers of one trace are sampled together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedMean:
    """The estimated mean of the population."""

    mean: float
    low: float
    """The ends of the 95 % confidence interval."""
    high: float
    records: int
    left_out: int
    """Number of records without a probability, which the estimate ignores."""
    effective: float
    """The effective sample size."""


def weighted_mean(found: Iterable[Weighed]) -> WeightedMean | None:
    """Estimate a mean from records sampled with different probabilities; ``None`` if there are none.

    Each record has the weight ``1 / probability`` (Horvitz and Thompson 1952, in Hájek's ratio form). The
    interval is Wilson's for the effective sample size: Kish's, or less if the scores of heavy records differ
    (the linearized variance over clusters). It is never too short for values in [0, 1].

    Raises:
        ValueError: a value or probability is out of range.
    """
    running = RunningMean()
    for weighed in sorted(found, key=lambda weighed: weighed.cluster):
        running.add(weighed)
    return running.estimate()


class RunningMean:
    """The `weighted_mean` of a stream of records, in constant memory.

    Records of a cluster must be adjacent: a later one counts as a separate cluster.
    """

    def __init__(self) -> None:
        self._records = self._left_out = 0
        self._origin = 0.0  # sums are relative to the first value: small differences stay exact
        self._whole = Moments()
        self._cluster: str | None = None
        self._weight = self._sum = 0.0

    def add(self, weighed: Weighed) -> None:
        """Add a record.

        Raises:
            ValueError: its value or probability is out of range.
        """
        if weighed.probability is None:
            self._left_out += 1
            return
        if not (0 <= weighed.value <= 1 and 0 < weighed.probability <= 1):
            raise ValueError(f"{weighed.value} with probability {weighed.probability}: both are at most 1")
        if weighed.cluster != self._cluster:
            self._whole = self._whole.plus(self._weight, self._sum)
            self._cluster, self._weight, self._sum = weighed.cluster, 0.0, 0.0
        if not self._records:
            self._origin = weighed.value
        self._records += 1
        self._weight += 1 / weighed.probability
        self._sum += (weighed.value - self._origin) / weighed.probability

    def estimate(self) -> WeightedMean | None:
        """Return the estimate from the records so far; ``None`` if there are none."""
        whole = self._whole.plus(self._weight, self._sum)
        return mean_of(whole, records=self._records, left_out=self._left_out, origin=self._origin)


class Moments(NamedTuple):
    """Sums over clusters of weights, weighted values and their products."""

    weight: float = 0.0
    sum: float = 0.0
    weight_weight: float = 0.0
    weight_sum: float = 0.0
    sum_sum: float = 0.0

    def plus(self, weight: float, total: float) -> Moments:
        """Add a cluster."""
        return Moments(
            self.weight + weight,
            self.sum + total,
            self.weight_weight + weight**2,
            self.weight_sum + weight * total,
            self.sum_sum + total**2,
        )

    def effective(self, even: float) -> float:
        """Return the effective sample size; ``even`` is the variance of one record."""
        kish, mean = self.weight**2 / self.weight_weight, self.sum / self.weight
        # squared residuals of the clusters: weighted values minus weight times mean
        squares = self.sum_sum - 2 * mean * self.weight_sum + mean**2 * self.weight_weight
        variance = max(0.0, squares) / self.weight**2
        return min(kish, even / variance) if even and variance else kish


def mean_of(moments: Moments, *, records: int, left_out: int, origin: float = 0.0) -> WeightedMean | None:
    """Return the `weighted_mean` that these sums tell; ``None`` without a record.

    Sums of differences from an ``origin`` near the values keep small differences exact.
    """
    if not records:
        return None
    mean = min(1.0, max(0.0, origin + moments.sum / moments.weight))
    effective = moments.effective(mean * (1 - mean))
    low, high = wilson(mean, effective)
    return WeightedMean(
        mean=mean, low=low, high=high, records=records, left_out=left_out, effective=effective
    )


class MeanDifference(NamedTuple):
    """How much two means differ."""

    change: float
    """The newer minus the older one."""
    low: float
    """The ends of the 95 % confidence interval."""
    high: float

    @property
    def is_chance(self) -> bool:
        """Whether chance alone may explain it: the interval holds 0."""
        return self.low <= 0 <= self.high


def difference_of(newer: WeightedMean, older: WeightedMean) -> MeanDifference:
    """Compare the means of two independent samples.

    The interval is made of those of the two means (Newcombe 1998, *Interval estimation for the
    difference between independent proportions*, method 10).
    """
    change = newer.mean - older.mean
    below = sqrt((newer.mean - newer.low) ** 2 + (older.high - older.mean) ** 2)
    above = sqrt((newer.high - newer.mean) ** 2 + (older.mean - older.low) ** 2)
    return MeanDifference(change, max(-1.0, change - below), min(1.0, change + above))


class RatioTotal(NamedTuple):
    """The estimated sum over the population."""

    low: float
    """The ends of the 95 % confidence interval."""
    likely: float
    high: float


def ratio_total(pairs: Sequence[tuple[float, float]], *, population: int, size: float) -> RatioTotal:
    """Estimate the sum of all amounts from a sample, given the known sum of a related size.

    It uses the ratio estimator with the finite population correction (Cochran 1977, *Sampling Techniques*,
    2.6 and chapter 6) and Student's t. The lower end is at least the sampled sum. The spread gets one extra
    observation of three times its expected amount, in the spirit of Agresti and Coull (1998), because a small
    sample can look even by chance. The upper end is that of the logarithm's interval, because such sums are
    skewed upward.

    Args:
        pairs: Size and amount of each sampled item; the sample is random, without replacement.
        population: Number of items.
        size: The sum of all sizes.

    Raises:
        ValueError: there is no sample, it is larger than the population, or all its sizes are 0.
    """
    number, sampled = len(pairs), sum(item_size for item_size, _ in pairs)
    if not 0 < number <= population or sampled <= 0:
        raise ValueError(f"a sample of {number} of {population}, of size {sampled}, cannot estimate the sum")
    known = sum(amount for _, amount in pairs)
    if number == population or not known:
        return RatioTotal(known, known, known)
    ratio = known / sampled
    likely = known + ratio * max(0.0, size - sampled)
    residuals = (
        sum((amount - ratio * item_size) ** 2 for item_size, amount in pairs) + (2 * known / number) ** 2
    )
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
