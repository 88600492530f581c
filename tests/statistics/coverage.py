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
    PredictedAnswer,
    corrected_rate,
    difference_of,
    predicted_mean,
    weighted_mean,
    weighted_quantiles,
)
from tests.statistics.weeks import SENSITIVITY, SPECIFICITY, Week, truth, values_of, weeks

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


EndsT = TypeVar("EndsT")
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


def mean(week: Week, _: np.random.Generator) -> Ends:
    return _known(weighted_mean(week.judged(week.score)))


def pass_rate(week: Week, _: np.random.Generator) -> Ends:
    return _known(weighted_mean(week.judged(week.passes)))


def tenth(week: Week, _: np.random.Generator) -> Ends:
    return weighted_quantiles(week.judged(week.score), [0.1])[0]


def median(week: Week, _: np.random.Generator) -> Ends:
    return weighted_quantiles(week.judged(week.cheap), [0.5])[0]


def difference(week: Week, _: np.random.Generator) -> Ends:
    newer = weighted_mean(week.judged(week.passes, week.is_new_prompt))
    older = weighted_mean(week.judged(week.passes, ~week.is_new_prompt))
    return difference_of(_known(newer), _known(older))


def difference_of_scores(week: Week, _: np.random.Generator) -> Ends:
    newer = weighted_mean(week.judged(week.score, week.is_new_prompt))
    older = weighted_mean(week.judged(week.score, ~week.is_new_prompt))
    return difference_of(_known(newer), _known(older))


def rogan_gladen(week: Week, draw: np.random.Generator) -> Ends:
    errors = JudgeErrors(
        sensitivity=CountedShare(hits=int(draw.binomial(_LABELED_GOOD, SENSITIVITY)), of=_LABELED_GOOD),
        specificity=CountedShare(hits=int(draw.binomial(_LABELED_BAD, SPECIFICITY)), of=_LABELED_BAD),
    )
    return _known(corrected_rate(_known(weighted_mean(week.judged(week.passes))), errors))


def uncorrected(week: Week, _: np.random.Generator) -> Ends:
    return _known(weighted_mean(week.judged(week.passes)))


def prediction_powered(week: Week, _: np.random.Generator) -> Ends:
    return _known(predicted_mean(_predicted(week, week.score)))


def prediction_powered_pass_rate(week: Week, _: np.random.Generator) -> Ends:
    return _known(predicted_mean(_predicted(week, week.passes.astype(float))))


def naive(week: Week, _: np.random.Generator) -> Ends:
    """The mean of what was judged, as a spreadsheet has it."""
    values = np.array(values_of(week.judged(week.score)))
    half = 1.96 * values.std(ddof=1) / sqrt(len(values))
    return Interval(values.mean() - half, values.mean() + half)


def naive_pass_rate(week: Week, _: np.random.Generator) -> Ends:
    values = np.array(values_of(week.judged(week.passes)))
    half = 1.96 * values.std(ddof=1) / sqrt(len(values))
    return Interval(values.mean() - half, values.mean() + half)


def _predicted(week: Week, values: np.ndarray) -> list[PredictedAnswer]:
    columns = zip(
        week.cheap.tolist(),
        values.tolist(),
        week.is_judged.tolist(),
        week.probability.tolist(),
        week.trace.tolist(),
        strict=True,
    )
    return [
        PredictedAnswer(cheap, 1.0, value if judged else None, probability if judged else None, str(trace))
        for cheap, value, judged, probability, trace in columns
    ]


def _known(found: EndsT | None) -> EndsT:
    assert found is not None
    return found


def _of_prompts(values: np.ndarray) -> float:
    everything = truth()
    return float(values[everything.is_new_prompt].mean() - values[~everything.is_new_prompt].mean())


ESTIMATES: Final[dict[str, tuple[Estimate, Callable[[], float]]]] = {
    "mean": (mean, lambda: float(truth().score.mean())),
    "pass rate": (pass_rate, lambda: float(truth().passes.mean())),
    "10 % quantile": (tenth, lambda: float(np.quantile(truth().score, 0.1))),
    "median": (median, lambda: float(np.quantile(truth().cheap, 0.5))),
    "difference of pass rates": (difference, lambda: _of_prompts(truth().passes)),
    "difference of means": (difference_of_scores, lambda: _of_prompts(truth().score)),
    "Rogan-Gladen": (rogan_gladen, lambda: float(truth().is_right.mean())),
    "prediction-powered mean": (prediction_powered, lambda: float(truth().score.mean())),
    "prediction-powered pass rate": (
        prediction_powered_pass_rate,
        lambda: float(truth().passes.mean()),
    ),
}
"""Estimates, and what they estimate."""
WRONG: Final[dict[str, tuple[Estimate, Callable[[], float]]]] = {
    "naive mean": (naive, lambda: float(truth().score.mean())),
    "naive pass rate": (naive_pass_rate, lambda: float(truth().passes.mean())),
    "pass rate of a judge that errs, for people's": (uncorrected, lambda: float(truth().is_right.mean())),
}
"""What people compute without this module."""
