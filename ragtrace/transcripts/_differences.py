"""Statistics of two evaluators: a paired interval, a test of labels, Cohen's kappa."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from typing import Final, NamedTuple

_Z_95: Final = 1.959963984540054


class Pair(NamedTuple):
    """Two values in [0, 1] of one record."""

    first: float
    second: float
    probability: float | None
    """The record's sampling probability; ``None`` if unknown."""
    cluster: str
    """The trace: its answers are sampled together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The estimated mean of second value minus first, over the population."""

    first: float
    second: float
    mean: float
    low: float
    """The ends of the 95 % confidence interval of the mean difference."""
    high: float
    pairs: int
    left_out: int
    """Number of pairs without a probability."""


def paired_difference(found: Iterable[Pair]) -> Difference | None:
    """Estimate a mean difference from pairs with different sampling probabilities; ``None`` without pairs.

    It is the adjusted Wald interval for paired proportions (Bonett and Price 2012) for any values in [0, 1].
    One pair with the difference 1 and one with -1 are added, so that equal pairs are no certainty. The
    variance is linearized over clusters; the weights are those of `weighted_mean`.

    Raises:
        ValueError: a value or probability is out of range.
    """
    pairs = tuple(found)
    counted = [pair for pair in pairs if pair.probability is not None]
    if not counted:
        return None
    _check(counted)
    weights = [1 / (pair.probability or 1.0) for pair in counted]
    total = sum(weights)
    first = sum(weight * each.first for weight, each in zip(weights, counted, strict=True)) / total
    second = sum(weight * each.second for weight, each in zip(weights, counted, strict=True)) / total
    low, high = _adjusted_wald(counted, weights, second - first)
    return Difference(
        first=first,
        second=second,
        mean=second - first,
        low=low,
        high=high,
        pairs=len(counted),
        left_out=len(pairs) - len(counted),
    )


def _check(pairs: Sequence[Pair]) -> None:
    for pair in pairs:
        if not (0 <= pair.first <= 1 and 0 <= pair.second <= 1 and 0 < (pair.probability or 0) <= 1):
            raise ValueError(f"{pair.first} and {pair.second} with {pair.probability}: all are at most 1")


def _adjusted_wald(pairs: Sequence[Pair], weights: Sequence[float], mean: float) -> tuple[float, float]:
    of_clusters: dict[str, float] = defaultdict(float)
    residuals: dict[str, float] = defaultdict(float)
    for each, weight in zip(pairs, weights, strict=True):
        of_clusters[each.cluster] += weight
        residuals[each.cluster] += weight * (each.second - each.first - mean)
    total = sum(weights)
    effective = total**2 / sum(weight**2 for weight in of_clusters.values())
    variance = effective * sum(residual**2 for residual in residuals.values()) / total**2
    number = effective + 2
    center = mean * effective / number
    spread = (effective * (variance + mean**2) + 2) / number - center**2
    half = _Z_95 * sqrt(spread / number)
    return max(-1.0, center - half), min(1.0, center + half)


def sign_test(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of two counts under equality (McNemar 1947, exact)."""
    number, fewer = only_first + only_second, min(only_first, only_second)
    at_most = sum(comb(number, successes) for successes in range(fewer + 1))
    return min(1.0, 2 * at_most / (1 << number))


def agreement_beyond_chance(pairs: Iterable[tuple[bool, bool]]) -> float | None:
    """Return Cohen's kappa (1960); ``None`` if undefined: no pairs, or both always give the same label."""
    found = [*pairs]
    if not found:
        return None
    seen = sum(one == other for one, other in found) / len(found)
    one, other = (sum(side) / len(found) for side in zip(*found, strict=True))
    chance = one * other + (1 - one) * (1 - other)
    return None if chance > 1 - 1e-12 else (seen - chance) / (1 - chance)
