"""Differences between two groups: services, prompt versions, periods."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from ragtrace.stats.means import WeightedMean


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
