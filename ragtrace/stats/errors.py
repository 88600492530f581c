"""Pass rates that are corrected for a judge's errors."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from ragtrace.stats.means import Z_95, WeightedMean, wilson_interval


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
