"""Numbers from samples: unbiased, within their intervals, and what two samples differ by."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.sampling import keeps
from ragtrace.stats import (
    CountedShare,
    JudgeErrors,
    Pair,
    Weighed,
    WeightedMean,
    agreement_beyond_chance,
    corrected_rate,
    detection_effort,
    difference_of,
    paired_difference,
    ratio_total,
    sign_test,
    weighted_mean,
    weighted_quantiles,
    wilson_interval,
)

values = st.floats(0, 1)
drawn_records = st.lists(
    st.builds(Weighed, values, st.floats(0.01, 1), st.text("ab", min_size=1, max_size=3)), min_size=1
)


def test_answers_of_one_trace_count_as_one() -> None:
    apart = weighted_mean(Weighed(float(number < 8), 0.2, str(number)) for number in range(10))
    together = weighted_mean(Weighed(float(number < 8), 0.2, str(number // 2)) for number in range(10))
    assert together.effective == pytest.approx(5)
    assert together.low < apart.low


def twice_over(found: list[Weighed]) -> tuple[float, float]:
    """The mean and its effective number of records, with all of them at hand; in units of no rounding."""
    weights, residuals = defaultdict[str, Fraction](Fraction), defaultdict[str, Fraction](Fraction)
    pairs = [(1 / Fraction(each.probability or 1), Fraction(each.value), each.cluster) for each in found]
    total = sum(weight for weight, _, _ in pairs)
    mean = sum(weight * value for weight, value, _ in pairs) / total
    for weight, value, cluster in pairs:
        weights[cluster] += weight
        residuals[cluster] += weight * (value - mean)
    kish = total**2 / sum(weight**2 for weight in weights.values())
    variance = sum(residual**2 for residual in residuals.values()) / total**2
    even = mean * (1 - mean)
    return float(mean), float(min(kish, even / variance) if variance else kish)


@given(drawn_records)
def test_counting_one_by_one_says_what_looking_twice_says(found: list[Weighed]) -> None:
    said, (mean, effective) = weighted_mean(found), twice_over(found)
    assert said.mean == pytest.approx(mean)
    assert said.effective == pytest.approx(effective, rel=1e-4)


@given(drawn_records)
def test_the_mean_lies_in_its_interval_and_among_the_values(found: list[Weighed]) -> None:
    mean = weighted_mean(found)
    assert 0 <= mean.low <= mean.mean + 1e-9
    assert mean.mean - 1e-9 <= mean.high <= 1
    scores = [each.value for each in found]
    assert min(scores) - 1e-9 <= mean.mean <= max(scores) + 1e-9
    assert mean.effective <= len(found) + 1e-9


def test_what_is_no_score_or_no_probability_is_refused() -> None:
    for wrong in [Weighed(1.5, 0.5, "a"), Weighed(0.5, 0.0, "a"), Weighed(0.5, 2.0, "a")]:
        with pytest.raises(ValueError, match="at most 1"):
            weighted_mean([wrong])


AMOUNTS: dict[str, Callable[[float, random.Random], tuple[float, float]]] = {
    "as its size says": lambda size, draw: (size, size / 4),
    "noisy": lambda size, draw: (size, size / 4 * draw.lognormvariate(0, 0.3)),
    "with a part that is always there": lambda size, draw: (size, 400 + size / 5),
    "of two kinds": lambda size, draw: (size, size * draw.choice((0.2, 0.2, 0.45))),
    "some refuse": lambda size, draw: (2.0, 1.0 if draw.random() < 0.3 else 2.0),
    "a few are asked again": lambda size, draw: (2.0, 4.0 if draw.random() < 0.03 else 2.0),
    "thinks": lambda size, draw: (size, size / 10 + draw.expovariate(1 / 800)),
}
"""The size of a record, and what it took; sizes are skewed, as those of texts are."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", AMOUNTS)
def test_a_total_lies_in_its_interval_for_nineteen_samples_of_twenty(kind: str) -> None:
    draw = random.Random(7)
    everything = [AMOUNTS[kind](draw.lognormvariate(7, 0.8), draw) for _ in range(300)]
    size, total = (sum(each) for each in zip(*everything, strict=True))
    for sampled in (10, 60):
        found = [ratio_total(draw.sample(everything, sampled), population=300, size=size) for _ in range(400)]
        hits = sum(each.low <= total <= each.high for each in found)
        assert hits / len(found) >= 0.93, sampled  # 0.95 is in reach of this by chance


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1e6)), min_size=1, max_size=20), st.integers(0, 1000)
)
def test_a_total_is_no_less_than_what_is_known_of_it(pairs: list[tuple[float, float]], others: int) -> None:
    size = sum(each for each, _ in pairs) + others * 3
    found = ratio_total(pairs, population=len(pairs) + others, size=size)
    assert sum(amount for _, amount in pairs) <= found.low * (1 + 1e-9)
    assert found.low <= found.likely * (1 + 1e-9) <= found.high * (1 + 2e-9)


def test_difference_has_the_interval_of_mee() -> None:
    newer, older = (
        WeightedMean(mean=k / n, low=low, high=high, records=n, left_out=0, effective=float(n))
        for k, n, (low, high) in ((56, 70, wilson_interval(56, 70)), (48, 80, wilson_interval(48, 80)))
    )
    difference = difference_of(newer, older)
    # Newcombe 1998, table II, example (a), method 5
    ends = (difference.change, difference.low, difference.high)
    assert [round(value, 4) for value in ends] == [0.2, 0.0533, 0.3377]
    assert not difference.is_chance
    assert difference_of(older, older).is_chance


shares = st.floats(0, 1)
pairs = st.lists(
    st.builds(Pair, shares, shares, st.floats(0.01, 1), st.text("ab", min_size=1, max_size=3)), min_size=1
)


@given(pairs)
def test_the_difference_is_within_its_interval_and_turns_with_the_sides(found: list[Pair]) -> None:
    one = paired_difference(found)
    other = paired_difference(pair._replace(first=pair.second, second=pair.first) for pair in found)
    assert -1 <= one.low <= one.change <= one.high <= 1
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))


def test_pairs_without_a_probability_are_left_out_and_counted() -> None:
    found = paired_difference([Pair(0.0, 1.0, 1.0, "a"), Pair(1.0, 0.0, None, "b")])
    assert (found.change, found.records, found.left_out) == (1.0, (1, 1), 1)
    assert paired_difference([Pair(1.0, 0.0, None, "b")]) is None


def test_labels_that_turn_one_way_are_tested_exactly() -> None:
    for first, second, p in [(0, 0, 1.0), (1, 0, 1.0), (5, 5, 1.0), (0, 6, 0.03125), (10, 2, 0.0385742)]:
        assert sign_test(first, second) == pytest.approx(p, abs=1e-6), first
        assert sign_test(second, first) == sign_test(first, second), first


def test_agreement_is_what_is_beyond_chance() -> None:
    # Cohen 1960's way of counting: 20 of 50 both yes, 15 both no, 5 and 10 differ
    told = {(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}
    assert agreement_beyond_chance(told) == pytest.approx(0.4)
    assert agreement_beyond_chance({(True, True): 3}) is None
    assert agreement_beyond_chance({}) is None


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
        sensitivity=CountedShare(right=good[0], of=good[1]), specificity=CountedShare(right=bad[0], of=bad[1])
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


def test_effort_is_that_of_the_textbook() -> None:
    # two groups, 90 % and 85 %, two-sided 5 %, power 80 %: 686 each (Fleiss, without continuity correction)
    found = detection_effort(0.90, 0.05, dollars_an_answer=0.002, answers_a_day=98)
    assert found.answers == 686
    assert found.dollars == pytest.approx(1.372)
    assert found.days == pytest.approx(7.0)
    doubled = detection_effort(0.90, 0.05, design_effect=2.0)
    assert (doubled.answers, doubled.dollars, doubled.days) == (1372, None, None)


def population(seed: int, size: int = 4_000) -> list[tuple[str, float, float]]:
    """Return trace ids with a score and the rate of their rule: rules look for answers that are bad."""
    draw = random.Random(seed)
    scores = [min(1.0, draw.betavariate(5, 1) if draw.random() > 0.2 else draw.random()) for _ in range(size)]
    return [
        (f"{draw.getrandbits(128):032x}", score, 1.0 if score < 0.3 else 0.5 if score < 0.6 else 0.05)
        for score in scores
    ]


@pytest.mark.slow
def test_the_mean_of_a_sample_by_rules_is_that_of_all_within_its_interval() -> None:
    hits, errors = 0, []
    for seed in range(20):
        everything = population(seed)
        truth = sum(score for _, score, _ in everything) / len(everything)
        kept = [
            Weighed(score, rate, trace_id) for trace_id, score, rate in everything if keeps(trace_id, rate)
        ]
        found = weighted_mean(kept)
        assert found is not None
        hits += found.low <= truth <= found.high
        errors.append(found.mean - truth)
        assert abs(sum(each.value for each in kept) / len(kept) - truth) > 0.1  # unweighted, it is far off
    bias, spread = sum(errors) / len(errors), math.sqrt(sum(error**2 for error in errors) / len(errors))
    assert hits >= 18
    assert abs(bias) < 3 * spread / math.sqrt(len(errors))
