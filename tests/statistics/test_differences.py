"""Intervals of differences hold the truth as often as they say, in small samples too."""

from __future__ import annotations

import pytest

from tests.statistics.differences import DRAWN, FEW_TURNS, coverage, exact_coverage, shares


@pytest.mark.slow
@pytest.mark.parametrize("number", [30, 50])
@pytest.mark.parametrize("is_paired", [True, False], ids=["pairs", "samples"])
def test_an_interval_of_even_labels_holds_the_truth_as_often_as_labels_allow(
    number: int, is_paired: bool
) -> None:
    for truth in shares():
        held = exact_coverage(number, truth, is_paired=is_paired)
        assert held >= 0.94, truth
        if number * (truth[0] + truth[2]) >= FEW_TURNS:
            assert held <= 0.965, truth


pytestmark = pytest.mark.night


@pytest.mark.slow
@pytest.mark.parametrize("is_weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("is_paired", [True, False], ids=["pairs", "samples"])
@pytest.mark.parametrize("name", DRAWN)
def test_an_interval_of_a_difference_holds_the_truth_in_95_percent(
    name: str, is_paired: bool, is_weighted: bool
) -> None:
    held = coverage(name, 200, is_paired=is_paired, is_weighted=is_weighted, rounds=1_000)
    assert 0.93 <= held <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("is_paired", [True, False], ids=["pairs", "samples"])
@pytest.mark.parametrize("name", DRAWN)
def test_a_small_weighted_sample_is_not_believed_too_soon(name: str, is_paired: bool) -> None:
    assert coverage(name, 50, is_paired=is_paired, is_weighted=True, rounds=600) >= 0.915
