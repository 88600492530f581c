"""Means, shares and quantiles of values sampled with different probabilities."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import pow as power
from math import sqrt
from typing import Final, NamedTuple

Z_95: Final = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


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
    z2 = Z_95**2
    center = share + z2 / (2 * trials)
    half = Z_95 * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    scale = 1 + z2 / trials
    return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedQuantile:
    """The estimated quantile of the population."""

    share: float
    """The share of the population that is at most the value: 0.5 for the median."""
    value: float
    low: float
    """The ends of the 95 % confidence interval."""
    high: float
    records: int
    left_out: int
    """Number of records without a probability, which the estimate ignores."""


def weighted_quantiles(found: Iterable[Weighed], shares: Sequence[float]) -> list[WeightedQuantile]:
    """Estimate quantiles from records sampled with different probabilities; empty if there are none.

    The interval is Woodruff's (1952, *Confidence intervals for medians and other position measures*): that of
    the share of values up to the quantile, as `weighted_mean` has it, read back as values. Where many values
    are equal, it covers more than 95 %.

    Raises:
        ValueError: a share is not between 0 and 1.
    """
    if not all(0 < share < 1 for share in shares):
        raise ValueError(f"the shares of quantiles are between 0 and 1, not {list(shares)}")
    records = list(found)
    known = sorted((one for one in records if one.probability), key=lambda one: one.value)
    if not known:
        return []
    curve = _Curve(known, left_out=len(records) - len(known))
    return [curve.quantile(share) for share in shares]


class _Curve:
    """The estimated distribution: values in order, with the weight up to each."""

    def __init__(self, known: Sequence[Weighed], *, left_out: int) -> None:
        self._known = known
        self._left_out = left_out
        self._weights = [1 / (one.probability or 1) for one in known]
        self._up_to = list(accumulate(self._weights))

    def quantile(self, share: float) -> WeightedQuantile:
        value = self._value_at(share)
        low, high = wilson(share, self._size(value, share))
        return WeightedQuantile(
            share=share,
            value=value,
            low=self._value_at(low),
            high=self._value_at(high),
            records=len(self._known),
            left_out=self._left_out,
        )

    def _value_at(self, share: float) -> float:
        # a hair less, so that rounding does not skip a value that reaches the share exactly
        wanted = share * self._up_to[-1] * (1 - 1e-12)
        return self._known[min(bisect_left(self._up_to, wanted), len(self._known) - 1)].value

    def _size(self, value: float, share: float) -> float:
        """Return the effective sample size of the share of values up to this one."""
        clusters: dict[str, tuple[float, float]] = {}
        for one, weight in zip(self._known, self._weights, strict=True):
            whole, below = clusters.get(one.cluster, (0.0, 0.0))
            clusters[one.cluster] = (whole + weight, below + weight * (one.value <= value))
        moments = Moments()
        for whole, below in clusters.values():
            moments = moments.plus(whole, below)
        reached = moments.sum / moments.weight
        return moments.interval_size(reached * (1 - reached) or share * (1 - share))
