"""Intervals hold the truth as often as they say: in weeks, in small samples, and on labeled answers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ragtrace.stats import PredictedAnswer, predicted_mean
from tests.statistics.coverage import ESTIMATES, WRONG, coverage_of, known
from tests.statistics.differences import DRAWN, FEW_TURNS, coverage, exact_coverage, shares
from tests.statistics.labeled import CHEAP, RATES, SETS, TRUE, sampled, saving

pytestmark = [pytest.mark.night, pytest.mark.slow]


@pytest.mark.parametrize("name", ESTIMATES)
def test_an_interval_of_95_percent_holds_the_truth_in_95_percent_of_weeks(name: str) -> None:
    estimate, target = ESTIMATES[name]
    assert 0.935 <= coverage_of(estimate, target()).share <= 0.965


@pytest.mark.parametrize("name", WRONG)
def test_what_forgets_the_sampling_or_the_judges_errors_does_not(name: str) -> None:
    estimate, target = WRONG[name]
    assert coverage_of(estimate, target(), number=500).share < 0.85


@pytest.mark.parametrize("joined", [50, 100])
def test_a_cheap_judge_that_nearly_always_agrees_is_not_believed_at_once(joined: int) -> None:
    weeks = [known(predicted_mean(nearly_agreeing(random.Random(seed), joined))) for seed in range(600)]
    assert 0.935 <= sum(found.low <= 0.8 <= found.high for found in weeks) / len(weeks) <= 0.985


def nearly_agreeing(draw: random.Random, joined: int, answers: int = 800) -> Iterator[PredictedAnswer]:
    """Yield verdicts of two judges that part on 3 % of the answers; 80 % pass."""
    sampled = set(draw.sample(range(answers), joined))
    for number in range(answers):
        better = float(draw.random() < 0.8)
        cheap = 1 - better if draw.random() < 0.03 else better
        told = (better, joined / answers) if number in sampled else (None, None)
        yield PredictedAnswer(cheap, 1.0, *told, str(number))


@pytest.mark.parametrize("is_paired", [True, False], ids=["pairs", "samples"])
def test_an_interval_of_even_labels_holds_the_truth_as_often_as_labels_allow(is_paired: bool) -> None:
    for truth in shares():
        held = exact_coverage(50, truth, is_paired=is_paired)
        assert held >= 0.94, truth
        if 50 * (truth[0] + truth[2]) >= FEW_TURNS:
            assert held <= (0.965 if is_paired else 0.975), truth


@pytest.mark.parametrize("is_paired", [True, False], ids=["pairs", "samples"])
@pytest.mark.parametrize("name", DRAWN)
def test_an_interval_of_a_difference_holds_the_truth_in_95_percent(name: str, is_paired: bool) -> None:
    for is_weighted in (False, True):
        held = coverage(name, 200, is_paired=is_paired, is_weighted=is_weighted, rounds=1_000)
        assert 0.93 <= held <= 0.97, is_weighted
    small = coverage(name, 50, is_paired=is_paired, is_weighted=True, rounds=600)
    assert small >= 0.915


@pytest.mark.parametrize("name", SETS)
def test_joining_on_labeled_answers_is_right_and_a_better_cheap_judge_saves_more(name: str) -> None:
    for true in TRUE:
        found = {cheap: saving(name, cheap=cheap, true=true) for cheap in CHEAP}
        for cheap, saved in found.items():
            # a quarter of a finite set: the interval covers rather more
            assert (saved.covered >= 0.93, saved.narrower >= 0) == (True, True), (true, cheap)
        assert found["unsuspicious"].narrower > found["lexical_score"].narrower


@pytest.mark.parametrize("name", SETS)
def test_sampling_for_finding_alone_finds_twice_as_many_flawed_answers(name: str) -> None:
    found = sampled(name, true="human_pass", plan=RATES["for finding alone"], weeks=1)
    assert found.flawed > 2 * found.flawed_of_all


def test_sampling_by_suspicion_keeps_averages_true_and_makes_them_more_precise() -> None:
    finding = sampled("qa", true="human_pass", plan=RATES["for finding flawed answers"], weeks=60)
    assert finding.flawed > 2 * finding.flawed_of_all
    averages = sampled("qa", true="human_score", plan=RATES["for averages"], weeks=60)
    alike = sampled("qa", true="human_score", plan=None, weeks=60)
    assert averages.narrower > alike.narrower > 0.1
    assert min(finding.covered, averages.covered) >= 0.9
