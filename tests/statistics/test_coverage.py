"""Intervals hold the truth as often as they say, and what people compute without them does not."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ragtrace.stats import PredictedAnswer, predicted_mean
from tests.statistics.coverage import ESTIMATES, WRONG, coverage_of

pytestmark = pytest.mark.night


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


@pytest.mark.slow
@pytest.mark.parametrize("joined", [50, 100])
def test_a_cheap_judge_that_nearly_always_agrees_is_not_believed_at_once(joined: int) -> None:
    hits, weeks = 0, 600
    for seed in range(weeks):
        found = predicted_mean(nearly_agreeing(random.Random(seed), joined=joined))
        assert found is not None
        hits += found.low <= 0.8 <= found.high
    assert 0.935 <= hits / weeks <= 0.985


def nearly_agreeing(draw: random.Random, *, joined: int, answers: int = 800) -> Iterator[PredictedAnswer]:
    """Yield verdicts of two judges that part on 3 % of the answers; 80 % pass."""
    sampled = set(draw.sample(range(answers), joined))
    for number in range(answers):
        better = float(draw.random() < 0.8)
        cheap = 1 - better if draw.random() < 0.03 else better
        if number in sampled:
            yield PredictedAnswer(cheap, 1.0, better, joined / answers, str(number))
        else:
            yield PredictedAnswer(cheap, 1.0, None, None, str(number))
