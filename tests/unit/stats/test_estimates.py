"""Quantiles, corrections, joined judges and effort: small examples, laws, and a short simulation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.stats import (
    CountedShare,
    JudgeErrors,
    PredictedAnswer,
    Weighed,
    corrected_rate,
    detection_effort,
    predicted_mean,
    weighted_mean,
    weighted_quantiles,
)

RECORDS = st.lists(
    st.builds(
        Weighed, st.floats(0, 1), st.none() | st.floats(0.01, 1), st.text("ab", min_size=1, max_size=3)
    ),
    max_size=30,
)


def judged(passes: int, of: int) -> list[Weighed]:
    return [Weighed(float(number < passes), 0.5, str(number)) for number in range(of)]


def errors(good: tuple[int, int], bad: tuple[int, int]) -> JudgeErrors:
    return JudgeErrors(
        sensitivity=CountedShare(hits=good[0], of=good[1]), specificity=CountedShare(hits=bad[0], of=bad[1])
    )


@given(RECORDS, st.floats(0.05, 0.95))
def test_a_quantile_is_a_value_within_its_interval(found: list[Weighed], share: float) -> None:
    quantiles = weighted_quantiles(found, [share])
    known = [one.value for one in found if one.probability]
    assert bool(quantiles) == bool(known)
    for quantile in quantiles:
        assert {quantile.value, quantile.low, quantile.high} <= set(known)
        assert quantile.low <= quantile.value <= quantile.high
        assert (quantile.records, quantile.left_out) == (len(known), len(found) - len(known))


def test_a_quantile_weighs_answers_by_what_they_stand_for() -> None:
    found = [Weighed(0.9, 0.1, "high"), *(Weighed(0.1, 1.0, str(number)) for number in range(3))]
    (median,) = weighted_quantiles(found, [0.5])
    assert median.value == 0.9
    assert weighted_quantiles(found, [0.02])[0].value == 0.1


def test_the_interval_of_a_correction_is_that_of_lang_and_reiczigel() -> None:
    # by their formula, computed apart: 23 of 150 positive, 96 of 100 and 89 of 100 right
    passing = weighted_mean(judged(23, 150))
    assert passing is not None
    found = corrected_rate(passing, errors((96, 100), (89, 100)))
    assert found is not None
    assert found.rate == pytest.approx((23 / 150 + 0.89 - 1) / 0.85)
    z = 1.959963984540054
    n, p = 150 + z**2, (23 + z**2 / 2) / (150 + z**2)
    se, sp = 97 / 102, 90 / 102
    prevalence = (p + sp - 1) / (se + sp - 1)
    middle = prevalence + 2 * z**2 * (
        prevalence * se * (1 - se) / 102 - (1 - prevalence) * sp * (1 - sp) / 102
    )
    spread = (
        p * (1 - p) / n + prevalence**2 * se * (1 - se) / 102 + (1 - prevalence) ** 2 * sp * (1 - sp) / 102
    )
    half = z * spread**0.5 / (se + sp - 1)
    assert (found.low, found.high) == pytest.approx((max(0.0, middle - half), middle + half))


@pytest.mark.parametrize(
    "coin", [errors((100, 200), (100, 200)), errors((9, 10), (2, 10)), errors((0, 0), (5, 5))]
)
def test_a_judge_that_may_be_a_coin_corrects_nothing(coin: JudgeErrors) -> None:
    passing = weighted_mean(judged(70, 100))
    assert passing is not None
    assert coin.is_chance
    assert corrected_rate(passing, coin) is None


def joined(
    noise: float, *, sampled: float = 0.2, size: int = 1_000, bias: float = 0.0
) -> list[PredictedAnswer]:
    draw = random.Random(3)
    found = []
    for number in range(size):
        better = draw.betavariate(4, 1)
        cheap = min(1.0, max(0.0, better + bias + draw.gauss(0, noise)))
        is_sampled = draw.random() < sampled
        found.append(
            PredictedAnswer(
                cheap, 1.0, better if is_sampled else None, sampled if is_sampled else None, str(number)
            )
        )
    return found


def test_a_good_cheap_judge_saves_answers_and_a_useless_one_none() -> None:
    good, useless = predicted_mean(joined(0.05)), predicted_mean(joined(50.0))
    assert good is not None
    assert useless is not None
    assert good.factor > 2
    assert good.high - good.low < 0.7 * (good.alone.high - good.alone.low)
    assert useless.factor == pytest.approx(1, abs=0.05)
    assert good.joined == useless.joined == good.alone.records


def test_a_biased_cheap_judge_does_not_move_the_mean() -> None:
    fair, biased = predicted_mean(joined(0.05)), predicted_mean(joined(0.05, bias=-0.3))
    assert fair is not None
    assert biased is not None
    assert biased.mean == pytest.approx(fair.mean, abs=0.02)


def test_effort_is_that_of_the_textbook() -> None:
    # two groups, 90 % and 85 %, two-sided 5 %, power 80 %: 686 each (Fleiss, without continuity correction)
    found = detection_effort(0.90, 0.05, dollars_an_answer=0.002, answers_a_day=98)
    assert found is not None
    assert found.answers == 686
    assert found.dollars == pytest.approx(1.372)
    assert found.days == pytest.approx(7.0)
    doubled = detection_effort(0.90, 0.05, design_effect=2.0)
    assert doubled is not None
    assert (doubled.answers, doubled.dollars, doubled.days) == (1372, None, None)
