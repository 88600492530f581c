"""Intervals hold the truth as often as they say, and what people compute without them does not."""

from __future__ import annotations

import pytest

from tests.statistics.coverage import ESTIMATES, WRONG, coverage_of


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATES)
def test_an_interval_of_95_percent_holds_the_truth_in_95_percent_of_weeks(name: str) -> None:
    estimate, target = ESTIMATES[name]
    assert 0.935 <= coverage_of(estimate, target()).share <= 0.965


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_forgets_the_sampling_or_the_judges_errors_does_not(name: str) -> None:
    estimate, target = WRONG[name]
    assert coverage_of(estimate, target(), number=500).share < 0.85
