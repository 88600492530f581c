"""Prediction-powered means: a cheap judge on many answers, joined with a better one on a sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragtrace.stats.intervals import wilson
from ragtrace.stats.means import Weighed, WeightedMean, weighted_mean

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
    """So many times more answers the better judge alone would need for the same variance; 1 saves none."""
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
    if not (variance and even):
        low, high = wilson(mean, alone.effective)
    else:
        # one degree of freedom for the mean, one for the weight
        clusters = residuals.clusters
        low, high = wilson(mean, even / variance * max(1, clusters - 2) / clusters)
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
