"""Means of values that were sampled with different probabilities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import pow as power
from typing import Final, NamedTuple

from ragtrace.stats.intervals import wilson

CAUTION: Final = 0.75
"""How fast a sample that looks even is believed, as a power of its size: ``tests/statistics`` measures it."""


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
    """The effective sample size: Kish's, or less if the values of heavy records differ."""
    size: float | None = None
    """The sample size that the interval has: that of an even sample of 0 and 1 with the same variance."""


def weighted_mean(found: Iterable[Weighed]) -> WeightedMean | None:
    """Estimate a mean from records sampled with different probabilities; ``None`` if there are none.

    Each record has the weight ``1 / probability`` (Horvitz and Thompson 1952, in Hájek's ratio form). The
    interval is Wilson's for the sample size that the linearized variance over clusters means. Small samples
    of scores that look even get a longer one (`Moments.interval_size`). ``tests/statistics`` measures that it
    holds the truth in 95 % of samples.

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
        variance = self._variance
        return min(self._kish, even / variance) if even and variance else self._kish

    def interval_size(self, even: float) -> float:
        """Return the sample size that Wilson's interval needs to be as wide as the variance says.

        Scores vary less than shares with the same mean, and answers of one trace need not be alike: then it
        is above Kish's size. A small sample may look even by chance, so it gets only a part of that lead:
        none with one cluster, nearly all with thousands.
        """
        worst, variance = even / self._kish, self._variance
        if not (even and variance):
            return self._kish
        return even / (variance + max(0.0, worst - variance) / power(self._kish, CAUTION))

    @property
    def _kish(self) -> float:
        return self.weight**2 / self.weight_weight

    @property
    def _variance(self) -> float:
        """The linearized variance of the mean."""
        mean = self.sum / self.weight
        # squared residuals of the clusters: weighted values minus weight times mean
        squares = self.sum_sum - 2 * mean * self.weight_sum + mean**2 * self.weight_weight
        return max(0.0, squares) / self.weight**2


def mean_of(moments: Moments, *, records: int, left_out: int, origin: float = 0.0) -> WeightedMean | None:
    """Return the `weighted_mean` that these sums tell; ``None`` without a record.

    Sums of differences from an ``origin`` near the values keep small differences exact.
    """
    if not records:
        return None
    mean = min(1.0, max(0.0, origin + moments.sum / moments.weight))
    even = mean * (1 - mean)
    size = moments.interval_size(even)
    low, high = wilson(mean, size)
    return WeightedMean(
        mean=mean,
        low=low,
        high=high,
        records=records,
        left_out=left_out,
        effective=moments.effective(even),
        size=size,
    )
