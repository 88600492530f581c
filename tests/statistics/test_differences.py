"""Intervals of differences hold the truth as often as they say, from two hundred answers on."""

from __future__ import annotations

import pytest

from tests.statistics.differences import CASES, coverage

pytestmark = pytest.mark.night


@pytest.mark.slow
@pytest.mark.parametrize("is_weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("is_paired", [True, False], ids=["pairs", "samples"])
@pytest.mark.parametrize("name", CASES)
def test_an_interval_of_a_difference_holds_the_truth_in_95_percent(
    name: str, is_paired: bool, is_weighted: bool
) -> None:
    found = coverage(CASES[name], 200, is_paired=is_paired, is_weighted=is_weighted)
    assert 0.935 <= found.covered <= 0.965


@pytest.mark.parametrize("is_weighted", [False, True], ids=["even", "weighted"])
def test_a_small_sample_of_pairs_is_not_believed_too_soon(is_weighted: bool) -> None:
    case = CASES["pass rates 0.90 and 0.85"]
    assert coverage(case, 25, is_paired=True, is_weighted=is_weighted, rounds=300).covered >= 0.95
