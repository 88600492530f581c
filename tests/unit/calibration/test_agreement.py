"""Agreement with people: each figure against its definition, counted out by hand."""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.calibration.agreement import (
    ConfusionCounts,
    Numbers,
    Ranking,
    ScoredAnswer,
    Weights,
    balanced_accuracy,
    cohen_kappa,
)

Pairs = list[tuple[bool, bool | None]]

PAIRS = st.lists(st.tuples(st.booleans(), st.sampled_from([True, False, None])), max_size=30)
SCORED = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]), st.booleans()), min_size=1, max_size=20
)


def number(found: Numbers) -> float | None:
    """Return the number of one draw; None if it is undefined."""
    value = float(np.asarray(found).item())
    return None if np.isnan(value) else value


def even(many: int) -> Weights:
    return np.ones((1, many))


def counted(pairs: Pairs) -> ConfusionCounts:
    return ConfusionCounts.total(ConfusionCounts.of(human, judge) for human, judge in pairs)


def decided(pairs: Pairs) -> list[tuple[bool, bool]]:
    return [(human, judge) for human, judge in pairs if judge is not None]


@given(PAIRS)
def test_balanced_accuracy_is_the_mean_over_the_two_sides(pairs: Pairs) -> None:
    sides = [[human == judge for human, judge in decided(pairs) if human is side] for side in (True, False)]
    expected = mean(map(mean, sides)) if all(sides) else None
    assert number(balanced_accuracy(counted(pairs))) == (
        None if expected is None else pytest.approx(expected)
    )


@given(PAIRS)
def test_kappa_is_the_agreement_beyond_chance(pairs: Pairs) -> None:
    both = decided(pairs)
    found = number(cohen_kappa(counted(pairs)))
    if not both:
        assert found is None
        return
    seen = mean(human == judge for human, judge in both)
    chance = mean(one[0] == other[1] for one in both for other in both)  # pairs drawn apart
    assert found == (None if chance == 1 else pytest.approx((seen - chance) / (1 - chance)))


@given(SCORED)
def test_auc_is_the_chance_that_a_supported_claim_scores_higher(scored: list[tuple[float, bool]]) -> None:
    above = [score for score, supported in scored if supported]
    below = [score for score, supported in scored if not supported]
    found = number(ranking(scored).auc(even(len(scored))))
    if not above or not below:
        assert found is None
    else:
        assert found == pytest.approx(mean((a > b) + (a == b) / 2 for a in above for b in below))


@given(SCORED, st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_a_weight_counts_like_so_many_copies(scored: list[tuple[float, bool]], weights: list[int]) -> None:
    copies = [each for each, weight in zip(scored, weights, strict=False) for _ in range(weight)]
    weighted, copied = ranking(scored), ranking(copies)
    drawn, once = np.array([weights[: len(scored)]], dtype=float), even(len(copies))
    assert number(weighted.auc(drawn)) == pytest.approx(number(copied.auc(once)))
    assert number(weighted.best_threshold(drawn)) == number(copied.best_threshold(once))


def ranking(scored: list[tuple[float, bool]]) -> Ranking:
    return Ranking(ScoredAnswer(score, supported, at) for at, (score, supported) in enumerate(scored))
