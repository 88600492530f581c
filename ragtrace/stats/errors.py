"""Estimates that reckon with a judge's errors: corrected pass rates, means with a cheap judge's help."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

from ragtrace.stats.means import CAUTION, Z_95, Weighed, WeightedMean, weighted_mean, wilson, wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedShare:
    """A share that was counted."""

    right: int
    of: int

    @property
    def value(self) -> float:
        """The share; there must be a count."""
        return self.right / self.of


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeErrors:
    """How often a judge is right, as measured on answers that people labeled."""

    sensitivity: CountedShare
    """Of the answers that pass for people: those that pass for the judge."""
    specificity: CountedShare
    """Of the answers that fail for people: those that fail for the judge."""

    @property
    def youden(self) -> float:
        """Sensitivity plus specificity minus 1: 1 of a perfect judge, 0 of a coin."""
        return self.sensitivity.value + self.specificity.value - 1

    @property
    def is_chance(self) -> bool:
        """Whether the judge may be no better than a coin: the interval of `youden` reaches 0.

        The interval is that of the difference of two independent shares (Newcombe 1998, method 10).
        """
        if not (self.sensitivity.of and self.specificity.of):
            return True
        below = [
            share.value - wilson_interval(share.right, share.of)[0]
            for share in (self.sensitivity, self.specificity)
        ]
        return self.youden - sqrt(sum(half**2 for half in below)) <= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedRate:
    """The estimated share of answers that pass for people."""

    rate: float
    low: float
    """The ends of the 95 % confidence interval; it holds the judge's errors, too."""
    high: float
    is_clipped: bool
    """The estimate was below 0 or above 1: the judge errs otherwise here than where it was measured."""


def corrected_rate(passing: WeightedMean, errors: JudgeErrors) -> CorrectedRate | None:
    """Correct a judge's pass rate for its errors; ``None`` if the judge may be no better than a coin.

    The estimate is that of Rogan and Gladen (1978): ``(rate + specificity - 1) / (sensitivity + specificity
    - 1)``. The interval is that of Lang and Reiczigel (2014, *Confidence limits for prevalence of disease
    adjusted for estimated sensitivity and specificity*), with the sample size of the rate's interval for the
    number of answers. It presumes that the judge errs as often here as on the labeled answers.
    """
    if errors.is_chance:
        return None
    raw = (passing.mean + errors.specificity.value - 1) / errors.youden
    low, high = _lang_reiczigel(passing, errors)
    rate = _clipped(raw)
    return CorrectedRate(
        rate=rate, low=min(rate, _clipped(low)), high=max(rate, _clipped(high)), is_clipped=not 0 <= raw <= 1
    )


def _lang_reiczigel(passing: WeightedMean, errors: JudgeErrors) -> tuple[float, float]:
    size = passing.size or passing.effective
    answers = size + Z_95**2
    rate = (size * passing.mean + Z_95**2 / 2) / answers
    sensitivity, of_sensitivity = _plus_one(errors.sensitivity)
    specificity, of_specificity = _plus_one(errors.specificity)
    youden = sensitivity + specificity - 1
    found = (rate + specificity - 1) / youden
    missed = sensitivity * (1 - sensitivity) / of_sensitivity
    alarms = specificity * (1 - specificity) / of_specificity
    shift = 2 * Z_95**2 * (found * missed - (1 - found) * alarms)
    variance = rate * (1 - rate) / answers + found**2 * missed + (1 - found) ** 2 * alarms
    half = Z_95 * sqrt(variance) / youden
    return found + shift - half, found + shift + half


def _plus_one(share: CountedShare) -> tuple[float, int]:
    return (share.right + 1) / (share.of + 2), share.of + 2


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, value))


LEAST_JOINED: Final = 30
"""Fewer joined answers say too little about how the two judges go together."""


class PredictedAnswer(NamedTuple):
    """An answer that the cheap judge judged, or both did. Values are in [0, 1]."""

    cheap: float | None
    """``None`` if only the better judge judged it: then it is left out. Where the cheap one could not decide,
    give a constant instead."""
    cheap_probability: float | None
    """With which the answer was sampled for the cheap judge; ``None`` if unknown: then it is left out."""
    better: float | None
    """``None`` if only the cheap one judged it."""
    better_probability: float | None
    """With which it was sampled for the better judge; ``None`` if unknown: then only ``cheap`` counts."""
    cluster: str
    """The trace id: answers of one trace are sampled together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMean:
    """The mean of the better judge, estimated with the help of the cheap one."""

    mean: float
    low: float
    """The ends of the 95 % confidence interval."""
    high: float
    joined: int
    """Answers that both judged."""
    cheap: int
    """Answers that the cheap one judged."""
    weight: float
    """How much the cheap judge counts: 0 (useless here) to 1."""
    factor: float
    """So many times more answers the better judge alone would need for the same interval; 1 saves none."""
    alone: WeightedMean
    """The estimate from the better judge alone."""


def predicted_mean(answers: Iterable[PredictedAnswer]) -> PredictedMean | None:
    """Estimate the better judge's mean over all answers; ``None`` below 30 answers that both judged.

    It is the power-tuned estimator of Angelopoulos, Duchi and Zrnic (2023, *PPI++*), with weights of one over
    the sampling probability in each of its means: ``mean(better) + λ (mean(cheap, all) - mean(cheap,
    joined))``. The λ in [0, 1] with the least variance is taken. The variance is linearized over clusters,
    and counts that the joined answers are among all. The interval is Wilson's for the sample size that this
    variance means. The estimate is right however wrong the cheap judge is, if the probabilities are.

    Raises:
        ValueError: a value or probability is out of range.
    """
    known = [answer for answer in answers if answer.cheap is not None and answer.cheap_probability]
    joined = [answer for answer in known if answer.better is not None and answer.better_probability]
    if len(joined) < LEAST_JOINED:
        return None
    alone = weighted_mean(Weighed(one.better or 0.0, one.better_probability, one.cluster) for one in joined)
    assert alone is not None
    residuals = _Residuals(known, joined)
    weight = residuals.best_weight
    variance, before = residuals.variance(weight), residuals.variance(0.0)
    mean = min(1.0, max(0.0, residuals.mean + weight * residuals.shift))
    even = mean * (1 - mean)
    # few joined answers may agree by chance: they are not believed at once, as in `Moments.interval_size`
    variance += max(0.0, before - variance) * min(1.0, CAUTION / residuals.clusters)
    # one degree of freedom for the mean, one for the weight
    size = even / variance * max(1, residuals.clusters - 2) / residuals.clusters if variance else 0.0
    low, high = wilson(mean, size or alone.effective)
    return PredictedMean(
        mean=mean,
        low=low,
        high=high,
        joined=len(joined),
        cheap=len(known),
        weight=weight,
        factor=before / variance if variance else 1.0,
        alone=alone,
    )


class _Residuals:
    """What each cluster adds to the error: that of the better judge, and that of the cheap one's shift."""

    def __init__(self, known: Sequence[PredictedAnswer], joined: Sequence[PredictedAnswer]) -> None:
        of_all = [(one.cluster, one.cheap or 0.0, one.cheap_probability or 1.0) for one in known]
        of_joined = [(one.cluster, one.cheap or 0.0, one.better_probability or 1.0) for one in joined]
        better = [(one.cluster, one.better or 0.0, one.better_probability or 1.0) for one in joined]
        mean_of_all, all_errors = _linearized(of_all)
        mean_of_joined, joined_errors = _linearized(of_joined)
        mean_of_better, self._better = _linearized(better)
        self._shift = {
            cluster: error - joined_errors.get(cluster, 0.0) for cluster, error in all_errors.items()
        }
        self.mean = mean_of_better
        self.shift = mean_of_all - mean_of_joined
        """The cheap judge's mean of all minus that of the joined answers."""
        self.clusters = len(self._better)
        """Clusters that both judged."""

    @property
    def best_weight(self) -> float:
        together = sum(error * self._shift[cluster] for cluster, error in self._better.items())
        alone = sum(error**2 for error in self._shift.values())
        return min(1.0, max(0.0, -together / alone)) if alone else 0.0

    def variance(self, weight: float) -> float:
        return sum(
            (self._better.get(cluster, 0.0) + weight * shift) ** 2 for cluster, shift in self._shift.items()
        )


def _linearized(values: Sequence[tuple[str, float, float]]) -> tuple[float, dict[str, float]]:
    """Return a weighted mean, and what each cluster adds to its error."""
    whole = sum(1 / probability for _, _, probability in values)
    mean = sum(value / probability for _, value, probability in values) / whole
    errors: dict[str, float] = defaultdict(float)
    for cluster, value, probability in values:
        errors[cluster] += (value - mean) / probability / whole
    return mean, errors
