"""How often the interval of each estimate holds the truth, over many synthetic weeks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Final, Protocol, TypeVar

import numpy as np

from ragtrace.stats import (
    CountedShare,
    JudgeErrors,
    WeightedMean,
    corrected_rate,
    difference_of,
    weighted_mean,
    weighted_quantiles,
)
from tests.statistics.weeks import SENSITIVITY, SPECIFICITY, Truths, Week, truth, weeks

WEEKS: Final = 2_000
_LABELED_GOOD, _LABELED_BAD = 300, 80


class Ends(Protocol):
    """The ends of an interval."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval that is made here."""

    low: float
    high: float


FoundT = TypeVar("FoundT")
Estimate = Callable[[Week, np.random.Generator], Ends]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The result for one estimate."""

    hits: int
    weeks: int
    width: float
    """Mean width of the interval."""

    @property
    def share(self) -> float:
        return self.hits / self.weeks


def coverage_of(estimate: Estimate, target: float, *, number: int = WEEKS, seed: int = 0) -> Coverage:
    draw = np.random.default_rng(seed + 1_000_000)
    hits, width = 0, 0.0
    for week in weeks(number, seed=seed):
        found = estimate(week, draw)
        hits += found.low <= target <= found.high
        width += found.high - found.low
    return Coverage(hits=hits, weeks=number, width=width / number)


def _mean(week: Week, values: np.ndarray, only: Truths | None = None) -> WeightedMean:
    return known(weighted_mean(week.judged(values, only)))


def _of_prompts(week: Week, values: np.ndarray) -> Ends:
    return difference_of(_mean(week, values, week.is_new_prompt), _mean(week, values, ~week.is_new_prompt))


def _true_of_prompts(values: np.ndarray) -> float:
    is_new = truth().is_new_prompt
    return float(values[is_new].mean() - values[~is_new].mean())


def _rogan_gladen(week: Week, draw: np.random.Generator) -> Ends:
    errors = JudgeErrors(
        sensitivity=CountedShare(right=int(draw.binomial(_LABELED_GOOD, SENSITIVITY)), of=_LABELED_GOOD),
        specificity=CountedShare(right=int(draw.binomial(_LABELED_BAD, SPECIFICITY)), of=_LABELED_BAD),
    )
    return known(corrected_rate(_mean(week, week.passes), errors))


def _naive(week: Week, _: np.random.Generator) -> Ends:
    """The mean of what was judged, as a spreadsheet has it."""
    values = np.array([answer.value for answer in week.judged(week.score)])
    half = 1.96 * values.std(ddof=1) / sqrt(len(values))
    return Interval(values.mean() - half, values.mean() + half)


def known(found: FoundT | None) -> FoundT:
    assert found is not None
    return found


ESTIMATES: Final[dict[str, tuple[Estimate, Callable[[], float]]]] = {
    "mean": (lambda week, _: _mean(week, week.score), lambda: float(truth().score.mean())),
    "pass rate": (lambda week, _: _mean(week, week.passes), lambda: float(truth().passes.mean())),
    "10 % quantile": (
        lambda week, _: weighted_quantiles(week.judged(week.score), [0.1])[0],
        lambda: float(np.quantile(truth().score, 0.1)),
    ),
    "median": (
        lambda week, _: weighted_quantiles(week.judged(week.fine), [0.5])[0],
        lambda: float(np.quantile(truth().fine, 0.5)),
    ),
    "difference of pass rates": (
        lambda week, _: _of_prompts(week, week.passes),
        lambda: _true_of_prompts(truth().passes),
    ),
    "difference of means": (
        lambda week, _: _of_prompts(week, week.score),
        lambda: _true_of_prompts(truth().score),
    ),
    "Rogan-Gladen": (_rogan_gladen, lambda: float(truth().is_right.mean())),
}
"""Estimates, and what they estimate."""
WRONG: Final[dict[str, tuple[Estimate, Callable[[], float]]]] = {
    "naive mean": (_naive, lambda: float(truth().score.mean())),
    "pass rate of a judge that errs, for people's": (
        lambda week, _: _mean(week, week.passes),
        lambda: float(truth().is_right.mean()),
    ),
}
"""What people compute without this module."""
