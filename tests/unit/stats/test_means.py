"""Numbers from samples: unbiased, and within their intervals."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.sampling import keeps
from ragtrace.stats import (
    Weighed,
    WeightedMean,
    difference_of,
    ratio_total,
    weighted_mean,
    wilson_interval,
)

values = st.floats(0, 1)
records = st.lists(
    st.builds(Weighed, values, st.floats(0.01, 1), st.text("ab", min_size=1, max_size=3)), min_size=1
)


def population(seed: int, size: int = 20_000) -> list[tuple[str, float, float]]:
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
    for seed in range(40):
        everything = population(seed, 4_000)
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
    assert hits >= 36
    assert abs(bias) < 3 * spread / math.sqrt(len(errors))


def test_answers_of_one_trace_count_as_one() -> None:
    apart = weighted_mean(Weighed(float(number < 8), 0.2, str(number)) for number in range(10))
    together = weighted_mean(Weighed(float(number < 8), 0.2, str(number // 2)) for number in range(10))
    assert apart is not None
    assert together is not None
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


@given(records)
def test_counting_one_by_one_says_what_looking_twice_says(found: list[Weighed]) -> None:
    said, (mean, effective) = weighted_mean(found), twice_over(found)
    assert said is not None
    assert said.mean == pytest.approx(mean)
    assert said.effective == pytest.approx(effective, rel=1e-4)


@given(records)
def test_the_mean_lies_in_its_interval_and_among_the_values(found: list[Weighed]) -> None:
    mean = weighted_mean(found)
    assert mean is not None
    assert 0 <= mean.low <= mean.mean + 1e-9
    assert mean.mean - 1e-9 <= mean.high <= 1
    scores = [each.value for each in found]
    assert min(scores) - 1e-9 <= mean.mean <= max(scores) + 1e-9
    assert mean.effective <= len(found) + 1e-9


@pytest.mark.parametrize("wrong", [Weighed(1.5, 0.5, "a"), Weighed(0.5, 0.0, "a"), Weighed(0.5, 2.0, "a")])
def test_what_is_no_score_or_no_probability_is_refused(wrong: Weighed) -> None:
    with pytest.raises(ValueError, match="at most 1"):
        weighted_mean([wrong])


def amounts(kind: str, draw: random.Random) -> list[tuple[float, float]]:
    """Sizes of 300 records and what they took: sizes are skewed, as those of texts are."""
    sizes = [draw.lognormvariate(7, 0.8) for _ in range(300)]
    match kind:
        case "as its size says":
            return [(size, size / 4) for size in sizes]
        case "noisy":
            return [(size, size / 4 * draw.lognormvariate(0, 0.3)) for size in sizes]
        case "with a part that is always there":
            return [(size, 400 + size / 5) for size in sizes]
        case "of two kinds":
            return [(size, size * draw.choice((0.2, 0.2, 0.45))) for size in sizes]
        case "some refuse":
            return [(2.0, 1.0 if draw.random() < 0.3 else 2.0) for _ in sizes]
        case "a few are asked again":
            return [(2.0, 4.0 if draw.random() < 0.03 else 2.0) for _ in sizes]
        case _:
            return [(size, size / 10 + draw.expovariate(1 / 800)) for size in sizes]


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [10, 20, 60])
@pytest.mark.parametrize(
    "kind",
    [
        "as its size says",
        "noisy",
        "with a part that is always there",
        "of two kinds",
        "some refuse",
        "a few are asked again",
        "thinks",
    ],
)
def test_a_total_lies_in_its_interval_for_nineteen_samples_of_twenty(kind: str, sampled: int) -> None:
    draw = random.Random(7)
    everything = amounts(kind, draw)
    size, total = (sum(each) for each in zip(*everything, strict=True))
    hits, samples = 0, 400
    for _ in range(samples):
        found = ratio_total(draw.sample(everything, sampled), population=300, size=size)
        hits += found.low <= total <= found.high
    assert hits / samples >= 0.93  # 0.95 is in reach of this by chance


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1e6)), min_size=1, max_size=20), st.integers(0, 1000)
)
def test_a_total_is_no_less_than_what_is_known_of_it(pairs: list[tuple[float, float]], others: int) -> None:
    size = sum(each for each, _ in pairs) + others * 3
    found = ratio_total(pairs, population=len(pairs) + others, size=size)
    assert sum(amount for _, amount in pairs) <= found.low * (1 + 1e-9)
    assert found.low <= found.likely * (1 + 1e-9) <= found.high * (1 + 2e-9)


def test_difference_has_the_interval_of_newcombe() -> None:
    newer, older = (
        WeightedMean(mean=k / n, low=low, high=high, records=n, left_out=0, effective=float(n))
        for k, n, (low, high) in ((56, 70, wilson_interval(56, 70)), (48, 80, wilson_interval(48, 80)))
    )
    difference = difference_of(newer, older)
    # Newcombe 1998, table II, example (a), method 10
    assert [round(value, 4) for value in (difference.change, difference.low, difference.high)] == [
        0.2,
        0.0524,
        0.3339,
    ]
    assert not difference.is_chance
    assert difference_of(older, older).is_chance
