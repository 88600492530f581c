"""Honest numbers from small samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

__all__ = ["Weighed", "WeightedMean", "weighted_mean", "wilson_interval"]

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
    records = tuple(found)
    counted = [each for each in records if each.probability is not None]
    if not counted:
        return None
    _check(counted)
    weights = [1 / (each.probability or 1.0) for each in counted]
    total = sum(weights)
    mean = sum(weight * each.value for weight, each in zip(weights, counted, strict=True)) / total
    mean = min(1.0, max(0.0, mean))
    effective = _effective(counted, weights, mean)
    low, high = _wilson(mean, effective)
    return WeightedMean(
        mean=mean,
        low=low,
        high=high,
        records=len(counted),
        left_out=len(records) - len(counted),
        effective=effective,
    )


def _check(records: Sequence[Weighed]) -> None:
    for each in records:
        if not (0 <= each.value <= 1 and 0 < (each.probability or 0) <= 1):
            raise ValueError(f"{each.value} with probability {each.probability}: both are at most 1")


def _effective(records: Sequence[Weighed], weights: Sequence[float], mean: float) -> float:
    of_clusters: dict[str, float] = defaultdict(float)
    residuals: dict[str, float] = defaultdict(float)
    for each, weight in zip(records, weights, strict=True):
        of_clusters[each.cluster] += weight
        residuals[each.cluster] += weight * (each.value - mean)
    total = sum(weights)
    kish = total**2 / sum(weight**2 for weight in of_clusters.values())
    variance = sum(residual**2 for residual in residuals.values()) / total**2
    even = mean * (1 - mean)
    return min(kish, even / variance) if even and variance else kish
