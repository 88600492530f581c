"""Confidence intervals of proportions."""

from __future__ import annotations

from math import sqrt
from typing import Final

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
