"""On answers that people labeled, the joined estimate is right, and saves what the cheap judge is worth."""

from __future__ import annotations

import pytest

from tests.statistics.labeled import CHEAP, RATES, SETS, TRUE, sampled, saving

pytestmark = pytest.mark.night


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("cheap", CHEAP)
@pytest.mark.parametrize("true", TRUE)
def test_joining_is_right_and_never_costs_much(name: str, cheap: str, true: str) -> None:
    found = saving(name, cheap=cheap, true=true)
    assert found.covered >= 0.93  # a quarter of a finite set: the interval covers rather more
    assert found.narrower >= 0


@pytest.mark.slow
def test_a_better_cheap_judge_saves_more() -> None:
    lexical = saving("qa", cheap="lexical_score", true="human_score")
    coverage = saving("qa", cheap="coverage", true="human_score")
    assert coverage.narrower > max(0.05, lexical.narrower)
    assert saving("qa", cheap="unsuspicious", true="human_score").narrower > coverage.narrower > 0


@pytest.mark.slow
def test_the_suspicion_saves_more_than_verdicts_of_the_rate_of_passes() -> None:
    for name in SETS:
        verdicts = saving(name, cheap="lexical_score", true="human_pass")
        assert saving(name, cheap="unsuspicious", true="human_pass").narrower > verdicts.narrower


@pytest.mark.slow
def test_sampling_by_suspicion_finds_twice_as_many_flawed_answers_and_averages_stay_true() -> None:
    found = sampled("qa", true="human_pass", plan=RATES["for finding flawed answers"], weeks=60)
    assert found.flawed > 2 * found.flawed_of_all
    assert found.covered >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_sampling_for_finding_alone_finds_twice_as_many_flawed_answers_in_both_kinds(name: str) -> None:
    found = sampled(name, true="human_pass", plan=RATES["for finding alone"], weeks=1)
    assert found.flawed > 2 * found.flawed_of_all


@pytest.mark.slow
def test_sampling_by_suspicion_makes_the_mean_more_precise_for_the_same_calls() -> None:
    found = sampled("qa", true="human_score", plan=RATES["for averages"], weeks=60)
    alike = sampled("qa", true="human_score", plan=None, weeks=60)
    assert found.narrower > alike.narrower > 0.1
    assert found.covered >= 0.9
