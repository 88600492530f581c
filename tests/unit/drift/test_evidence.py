"""Evidence that a judge changed: a steady one is hardly ever accused, a changed one is found soon."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ragtrace.drift import AnchorRun, AnchorScore, RunResult, flips, look_weight, weigh

ALPHA = 0.01
Judge = Callable[[int, random.Random], float]


def run_of(judge: Judge, drawn: random.Random, *, anchors: int = 24) -> AnchorRun:
    scores = tuple(
        AnchorScore(
            anchor=str(at), metric="faithfulness", score=score, passed=score == 1, supported=at % 2 == 0
        )
        for at in range(anchors)
        for score in [judge(at, drawn)]
    )
    return AnchorRun(
        evaluator_version="v",
        anchors_sha256="a",
        judge="openai:m",
        began_ns=1,
        ended_ns=2,
        anchors=anchors,
        scores=scores,
    )


def days_until_drift(days: Sequence[Judge], seed: int) -> int | None:
    """Return after how many days drift is told; ``None`` if it is not."""
    drawn, runs = random.Random(seed), list[AnchorRun]()
    for day, judge in enumerate(days):
        run = run_of(judge, drawn)
        if runs:
            evidence = weigh(runs, run)
            run = replace(run, evidence=evidence.total, result=RunResult.STEADY)
            if evidence.is_drift:
                return day
        runs.append(run)
    return None


def certain(at: int, drawn: random.Random) -> float:
    """A judge that always says the same."""
    return 1.0 if at % 2 else 0.5


def wavering(at: int, drawn: random.Random) -> float:
    """A judge that is of two minds about a third of the anchors."""
    return certain(at, drawn) if at % 3 else drawn.choice((0.25, 0.5, 0.75, 1.0))


def stricter(judge: Judge) -> Judge:
    def judging(at: int, drawn: random.Random) -> float:
        return judge(at, drawn) * (0.5 if at % 3 == 1 else 1)

    return judging


@pytest.mark.slow
def test_a_steady_judge_that_wavers_is_accused_in_at_most_alpha_of_the_baselines() -> None:
    accused = [days_until_drift([wavering] * 20, seed) is not None for seed in range(80)]
    assert sum(accused) <= 80 * ALPHA


@pytest.mark.slow
def test_a_judge_that_became_stricter_on_a_third_of_24_anchors_after_ten_days_is_told_within_two() -> None:
    found = [days_until_drift([wavering] * 10 + [stricter(wavering)] * 2, seed) for seed in range(20)]
    assert sum(day is not None and day >= 10 for day in found) >= 18


def test_the_weights_of_all_looks_to_come_sum_to_one_at_most() -> None:
    assert 0.99 < sum(look_weight(look) for look in range(1, 10_000)) <= 1


def test_a_flip_names_the_anchor_with_its_scores_then_and_now() -> None:
    before = [run_of(certain, random.Random(day)) for day in range(3)]
    found = flips(before, run_of(stricter(certain), random.Random(9)))
    assert [(flip.anchor, flip.before, flip.now) for flip in found] == [
        (name, 1.0, 0.5) for name in ("1", "13", "19", "7")
    ]


def test_agreement_counts_only_what_has_a_label() -> None:
    run = run_of(certain, random.Random(1))
    unlabeled = tuple(replace(score, supported=None) for score in run.scores[:4])
    assert replace(run, scores=(*unlabeled, *run.scores[4:])).agreement() == (0, 20)
