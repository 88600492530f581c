"""Synthetic weeks of traffic whose truth is known, sampled as a collector does: worse answers more often.

An answer has a label of people, a score and a verdict of a judge that errs, and a score of many values.
Errors and negative feedback come with bad answers, and both raise the sampling probability of the whole
trace. Answers near low scores are judged, too, without a known probability.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ragtrace.stats import Weighed

TRACES: Final = 2_000
SENSITIVITY: Final = 0.92
SPECIFICITY: Final = 0.80
_RATE, _DISLIKED_RATE = 0.10, 0.5
_GOOD: Final = {"v1": 0.86, "v2": 0.76}
"""Mean share of answers that are right, by prompt version."""

Numbers = NDArray[np.float64]
Truths = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """All answers of a week, one element an answer."""

    trace: NDArray[np.int64]
    is_new_prompt: Truths
    is_right: Truths
    """As people label it."""
    score: Numbers
    passes: Truths
    """For the judge."""
    fine: Numbers
    probability: Numbers
    is_judged: Truths
    is_near: Truths
    """Judged only because an answer near it was low: its probability is unknown."""

    def judged(self, values: Numbers | Truths, only: Truths | None = None) -> list[Weighed]:
        wanted = self.is_judged if only is None else self.is_judged & only
        near = self.is_near if only is None else self.is_near & only
        known = np.flatnonzero(wanted)
        found = [
            Weighed(value, probability, str(trace))
            for value, probability, trace in zip(
                values[known].astype(float).tolist(),
                self.probability[known].tolist(),
                self.trace[known].tolist(),
                strict=True,
            )
        ]
        return found + [Weighed(float(values[at]), None, str(self.trace[at])) for at in np.flatnonzero(near)]


def weeks(number: int, *, seed: int) -> Iterator[Week]:
    draw = np.random.default_rng(seed)
    for _ in range(number):
        yield _week(draw, TRACES)


def _week(draw: np.random.Generator, traces: int) -> Week:
    trace = np.repeat(np.arange(traces), draw.choice([1, 2, 3], size=traces, p=[0.8, 0.15, 0.05]))
    size = len(trace)
    is_new = (draw.random(traces) < 0.4)[trace]
    mood = draw.beta(8, 2, size=traces)[trace] / 0.8  # what the answers of a trace have in common
    is_right = draw.random(size) < np.clip(np.where(is_new, _GOOD["v2"], _GOOD["v1"]) * mood, 0, 0.99)
    flips = np.where(is_right, draw.random(size) > SENSITIVITY, draw.random(size) > SPECIFICITY)
    passes = is_right ^ flips
    score = np.where(
        passes, np.where(draw.random(size) < 0.7, 1.0, draw.beta(9, 1, size)), draw.beta(2, 2, size)
    )
    fine = np.clip(0.55 * score + 0.45 * draw.beta(4, 2, size), 0, 1)
    failed = draw.random(size) < np.where(passes, 0.01, 0.08)
    disliked = draw.random(size) < np.where(is_right, 0.02, 0.25)
    rate = np.where(failed, 1.0, np.where(disliked, _DISLIKED_RATE, _RATE))
    probability = _highest(rate, trace, traces)
    is_judged = (draw.random(traces))[trace] < probability
    is_near = ~is_judged & (score < 0.4) & (draw.random(size) < 0.3)
    return Week(
        trace=trace,
        is_new_prompt=is_new,
        is_right=is_right,
        score=score,
        passes=passes,
        fine=fine,
        probability=probability,
        is_judged=is_judged,
        is_near=is_near,
    )


def _highest(rate: Numbers, trace: NDArray[np.int64], traces: int) -> Numbers:
    highest = np.zeros(traces)
    np.maximum.at(highest, trace, rate)
    return highest[trace]


@cache
def truth() -> Week:
    """Return what the weeks are drawn from, as one week of four million traces."""
    return _week(np.random.default_rng(1), 4_000_000)
