"""The promises of the alarm over a share: few false ones at 10,000 looks, and a drop found within a day."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import sqrt

import pytest

from ragtrace.sequential import ShareDetector

LOOKS, FALSE_ALARM = 10_000, 0.05
LIMIT = LOOKS / FALSE_ALARM
A_DAY = 500
Answer = tuple[bool, float]
"""Whether it fails, and its weight."""
Traffic = Callable[[float], Callable[[random.Random], Iterator[Answer]]]


def alarm_at(most: float, answers: Iterator[Answer], looks: int) -> int | None:
    """Return how many answers it took, looking at each; ``None`` without an alarm."""
    detector = ShareDetector(most=most)
    for number in range(1, looks + 1):
        failed, weight = next(answers)
        detector = detector.after(failed, weight=weight)
        if detector.total >= LIMIT:
            return number
    return None


def alarms(runs: int, make: Callable[[random.Random], Iterator[Answer]], most: float, looks: int) -> int:
    return sum(alarm_at(most, make(random.Random(seed)), looks) is not None for seed in range(runs))


def failing(share: float) -> Callable[[random.Random], Iterator[Answer]]:
    def answers(chance: random.Random) -> Iterator[Answer]:
        while True:
            yield chance.random() < share, 1.0

    return answers


def sampled(share: float) -> Callable[[random.Random], Iterator[Answer]]:
    """Traffic of which what fails is nearly always judged, and a tenth of the rest."""

    def answers(chance: random.Random) -> Iterator[Answer]:
        while True:
            failed = chance.random() < share
            suspicious = chance.random() < (0.9 if failed else 0.1)
            if suspicious or chance.random() < 0.1:
                yield failed, 0.1 if suspicious else 1.0

    return answers


def drifting(share: float) -> Callable[[random.Random], Iterator[Answer]]:
    """The objective is just met, or better, by the hour of the day."""

    def answers(chance: random.Random) -> Iterator[Answer]:
        number = 0
        while True:
            number += 1
            yield chance.random() < share * (1 - 0.5 * (number // 60 % 2)), 1.0

    return answers


CLAIMS = [(0.05, failing), (0.2, failing), (0.05, sampled), (0.1, drifting)]


@pytest.mark.parametrize(("most", "traffic"), CLAIMS)
def test_a_met_objective_raises_no_alarm_in_a_few_runs(most: float, traffic: Traffic) -> None:
    assert alarms(4, traffic(most), most, 1_000) == 0


@pytest.mark.parametrize("most", [0.05, 0.1])
def test_a_drop_of_ten_points_is_found_within_a_day_in_a_few_runs(most: float) -> None:
    assert alarms(20, failing(most + 0.1), most, A_DAY) >= 18


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("most", "traffic"), CLAIMS)
def test_false_alarms_over_ten_thousand_looks_are_as_rare_as_promised(most: float, traffic: Traffic) -> None:
    """Where answers represent very different numbers, the promise is nearly used up: 4 % of 4,000 runs."""
    runs = 400
    chance = 2 * sqrt(FALSE_ALARM * (1 - FALSE_ALARM) / runs)
    assert alarms(runs, traffic(most), most, LOOKS) <= (FALSE_ALARM + chance) * runs


@pytest.mark.slow
def test_a_test_that_is_repeated_at_each_answer_breaks_that_promise() -> None:
    """What the detector is for: at 95 %, the usual interval is wrong in most runs somewhere."""
    most, broken, runs = 0.1, 0, 100
    for seed in range(runs):
        chance, failed = random.Random(seed), 0
        for number in range(1, LOOKS + 1):
            failed += chance.random() < most
            if number > 30 and failed / number - most > 1.645 * sqrt(most * (1 - most) / number):
                broken += 1
                break
    assert broken > 5 * FALSE_ALARM * runs


@pytest.mark.slow
@pytest.mark.parametrize("most", [0.05, 0.1, 0.15, 0.2])
@pytest.mark.parametrize("before", [0, 1_000])
def test_a_drop_of_ten_points_is_found_within_a_day(most: float, before: int) -> None:
    """Whenever it comes: the answers before it, of a met objective, take nothing away."""

    def dropping(chance: random.Random) -> Iterator[Answer]:
        good, bad = failing(most)(chance), failing(most + 0.1)(chance)
        for _ in range(before):
            yield next(good)
        yield from bad

    runs = 600
    found = sum(
        (at := alarm_at(most, dropping(random.Random(seed)), before + A_DAY)) is not None and at > before
        for seed in range(runs)
    )
    assert found >= 0.9 * runs


@pytest.mark.slow
def test_a_drop_is_found_in_unequally_sampled_traffic_too() -> None:
    """500 judged answers of which most count a tenth say less, and two days are enough."""
    runs = 200
    assert alarms(runs, sampled(0.15), 0.05, 2 * A_DAY) >= 0.9 * runs
