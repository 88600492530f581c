"""Means, shares and quantiles of values sampled with different probabilities, and how two means differ."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import acos, ceil, copysign, cos, exp, lgamma, log, pi, sqrt
from typing import Final, NamedTuple, TypeVar

LabelT = TypeVar("LabelT", bound=Hashable)

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


CAUTION: Final = 4.0
"""A sample that looks even is believed but for this over its size: ``tests/statistics`` measures it."""


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
        return min(self.kish, even / variance) if even and variance else self.kish

    def interval_size(self, even: float) -> float:
        """Return the sample size that Wilson's interval needs to be as wide as the variance says.

        Scores vary less than shares with the same mean, and answers of one trace need not be alike: then it
        is above Kish's size. A small sample may look even by chance, so it gets only a part of that lead:
        none with one cluster, nearly all with thousands.
        """
        worst, variance = even / self.kish, self._variance
        if not (even and variance):
            return self.kish
        return even / (variance + max(0.0, worst - variance) * min(1.0, CAUTION / self.kish))

    @property
    def kish(self) -> float:
        """The effective sample size by the weights alone (Kish 1965)."""
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

    It is the score interval (Mee 1984, *Confidence bounds for the difference between two probabilities*), for
    the sample sizes of the intervals of the two means.
    """
    first, second = older.mean, newer.mean
    of_first, of_second = older.size or older.effective, newer.size or newer.effective
    ratio = of_first / of_second

    def is_within(truth: float) -> bool:
        # the likeliest shares with this difference are a root of a cubic (Farrington and Manning 1990)
        square = -(1 + ratio + second + ratio * first + truth * (ratio + 2)) / (1 + ratio) / 3
        linear = (truth**2 + truth * (2 * second + ratio + 1) + second + ratio * first) / (1 + ratio) / 3
        shift = square**3 - 1.5 * square * linear - second * truth * (1 + truth) / (1 + ratio) / 2
        spread = copysign(sqrt(max(0.0, square**2 - linear)), shift)
        turn = acos(min(1.0, max(-1.0, shift / spread**3))) if spread else 0.0
        newly = min(1.0, max(0.0, truth, 2 * spread * cos((pi + turn) / 3) - square))
        before = min(1.0, max(0.0, newly - truth))
        variance = newly * (1 - newly) / of_second + before * (1 - before) / of_first
        return (second - first - truth) ** 2 <= Z_95**2 * variance

    low, high = _score_ends(is_within, second - first, 1.0)
    return Difference(first=first, second=second, low=low, high=high, records=(older.records, newer.records))


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

    The interval is the score interval for paired proportions (Tango 1998, *Equivalence test and confidence
    interval for the difference in proportions for the paired-sample design*). Pairs of scores count as labels
    that turn by the root mean square of their differences, with one pair of difference 1 among them, so that
    equal pairs are no certainty. Weights are one over the probability. The sample size is what the variance
    linearized over clusters means, with room for one more difference in the heaviest cluster.
    ``tests/statistics`` measures how often it holds the truth.

    Raises:
        ValueError: a value or probability is out of range.
    """
    number = left_out = 0
    first = second = apart = squares = 0.0
    clusters: dict[str, tuple[float, float]] = {}
    for pair in found:
        if pair.probability is None:
            left_out += 1
            continue
        if not (0 <= pair.first <= 1 and 0 <= pair.second <= 1 and 0 < pair.probability <= 1):
            raise ValueError(f"{pair.first} and {pair.second} with {pair.probability}: all are at most 1")
        number, weight, change = number + 1, 1 / pair.probability, pair.second - pair.first
        first, second = first + weight * pair.first, second + weight * pair.second
        apart, squares = apart + weight * (change != 0), squares + weight * change**2
        whole, changed = clusters.get(pair.cluster, (0.0, 0.0))
        clusters[pair.cluster] = (whole + weight, changed + weight * change)
    if not number:
        return None
    moments = Moments()
    for cluster in clusters.values():
        moments = moments.plus(*cluster)
    total, added = moments.weight, moments.weight / moments.kish
    step = sqrt((squares + added) / (apart + added))
    change, turned = (second - first) / total, apart / total
    even = max(0.0, turned * step**2 - change**2)
    size = moments.interval_size(even)
    if even:
        heaviest = max(whole for whole, _ in clusters.values())
        unseen = (heaviest**2 - (total / len(clusters)) ** 2) * (step / total) ** 2
        size = even / (even / size + unseen)
    low, high = _tango(change, turned, step, size)
    return Difference(
        first=first / total,
        second=second / total,
        low=low,
        high=high,
        records=(number, number),
        left_out=left_out,
    )


def _tango(change: float, turned: float, step: float, size: float) -> tuple[float, float]:
    """Return the ends for a share of pairs that turn, by ``step`` or its opposite."""
    fall = (turned - change / step) / 2

    def is_within(truth: float) -> bool:
        true = truth / step
        slope = (2 - change / step) * true - turned
        falls = (sqrt(max(0.0, slope**2 + 8 * fall * true * (1 - true))) - slope) / 4
        return size * (change / step - true) ** 2 <= Z_95**2 * (2 * falls + true * (1 - true))

    return _score_ends(is_within, change, step)


def _score_ends(is_within: Callable[[float], bool], change: float, most: float) -> tuple[float, float]:
    """Return the farthest differences, up to ``most``, that the test does not reject."""

    def end(beyond: float) -> float:
        within = change
        for _ in range(50):
            middle = (within + beyond) / 2
            within, beyond = (middle, beyond) if is_within(middle) else (within, middle)
        return within

    return end(-most), end(most)


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


Z_POWER: Final = 0.8416212335729143
"""The 80 % point of the normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionEffort:
    """What it takes to detect a drop of a pass rate."""

    drop: float
    answers: int
    """Judged answers in each of the two periods that are compared."""
    dollars: float | None
    """For the answers of one period; ``None`` if the cost of an answer is unknown."""
    days: float | None
    """Until so many are judged; ``None`` if nothing tells how many are judged a day."""


def detection_effort(
    rate: float,
    drop: float,
    *,
    design_effect: float = 1.0,
    dollars_an_answer: float | None = None,
    answers_a_day: float | None = None,
) -> DetectionEffort | None:
    """Say what it takes to detect that a pass rate falls by ``drop``; ``None`` if it cannot fall so far.

    Two periods with as many answers are compared by a two-sided test at the 5 % level that finds the drop in
    80 % of cases (Fleiss, Levin and Paik 2003, *Statistical methods for rates and proportions*, 4.1). Unequal
    sampling probabilities and answers that share a trace multiply the number by the design effect (Kish
    1965): the number of answers over the sample size of their interval.

    Raises:
        ValueError: the drop is not between 0 and 1, or the design effect is not positive.
    """
    if not (0 < drop < 1 and design_effect > 0):
        raise ValueError(f"a drop of {drop} with a design effect of {design_effect} cannot be detected")
    after = rate - drop
    if after < 0:
        return None
    middle = (rate + after) / 2
    spread = Z_95 * (2 * middle * (1 - middle)) ** 0.5
    spread += Z_POWER * (rate * (1 - rate) + after * (1 - after)) ** 0.5
    answers = ceil(spread**2 / drop**2 * design_effect)
    return DetectionEffort(
        drop=drop,
        answers=answers,
        dollars=None if dollars_an_answer is None else answers * dollars_an_answer,
        days=answers / answers_a_day if answers_a_day else None,
    )


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
    z, n = Z_95, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4
