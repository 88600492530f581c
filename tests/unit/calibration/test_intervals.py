"""Intervals by drawing again: they hold the truth as often as they say, and repeat."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.calibration.agreement import IntervalEstimate, Numbers, Resampling, Weights, fold_of


def mean_of(values: list[float], weights: Weights) -> Numbers:
    return weights @ np.array(values) / weights.sum(axis=1)


def estimate(values: list[float], *, strata: list[str] | None = None, seed: int = 0) -> IntervalEstimate:
    drawn = Resampling([1.0] * len(values), strata or ["all"] * len(values), resamples=200, seed=seed)
    found = drawn.estimate(lambda weights: mean_of(values, weights))
    assert found is not None
    return found


@pytest.mark.slow
def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    world = random.Random(1)
    held = 0
    for trial in range(200):
        rates = [world.betavariate(4, 2) for _ in range(60)]  # each answer has its own
        found = estimate([float(world.random() < rate) for rate in rates], seed=trial)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 2 / 3 <= found.high
    assert 180 <= held <= 198


def test_clusters_of_a_group_are_drawn_together() -> None:
    values = [float(at % 2) for at in range(40)]  # twenty of each, in groups that are all right or all wrong
    groups = [f"{at % 2}-{at // 8}" for at in range(40)]
    drawn = Resampling([1.0] * 40, ["all"] * 40, groups, resamples=200)
    found = drawn.estimate(lambda weights: mean_of(values, weights))
    assert found is not None
    assert width(found) > 1.5 * width(estimate(values))
    few = Resampling([1.0] * 40, ["all"] * 40, [at % 4 for at in range(40)], resamples=200)
    assert few.estimate(lambda weights: mean_of(values, weights)) == IntervalEstimate(value=0.5)  # too few


def test_few_answers_have_no_interval() -> None:
    assert estimate([0.0, 1.0, 1.0]) == IntervalEstimate(value=pytest.approx(2 / 3))


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(2, 6), st.integers())
def test_folds_are_even_in_every_stratum(strata: list[str], folds: int, seed: int) -> None:
    dealt = fold_of(strata, folds=folds, seed=seed)
    assert len(dealt) == len(strata)
    for stratum in set(strata):
        sizes = sorted(
            sum(fold == at and of == stratum for fold, of in zip(dealt, strata, strict=True))
            for at in range(folds)
        )
        assert all(high - low <= 1 for low, high in pairwise(sizes))


def width(found: IntervalEstimate) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low
