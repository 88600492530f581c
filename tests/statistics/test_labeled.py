"""On answers that people labeled, the joined estimate is right, and saves what the cheap judge is worth."""

from __future__ import annotations

import pytest

from tests.statistics.labeled import CHEAP, SETS, TRUE, saving


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
