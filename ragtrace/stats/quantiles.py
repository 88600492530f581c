"""Quantiles of values that were sampled with different probabilities."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ragtrace.stats.intervals import wilson
from ragtrace.stats.means import Moments, Weighed


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
