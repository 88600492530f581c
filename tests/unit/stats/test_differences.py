"""How two samples differ in pairs: intervals that hold, and tests that say what they should."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.stats import Pair, agreement_beyond_chance, paired_difference, sign_test

Draw = Callable[[random.Random], tuple[float, float]]
shares = st.floats(0, 1)
pairs = st.lists(
    st.builds(Pair, shares, shares, st.floats(0.01, 1), st.text("ab", min_size=1, max_size=3)), min_size=1
)


def rarely_apart(draw: random.Random) -> tuple[float, float]:
    """Two judges who see one answer in twenty differently, and then quite."""
    score = draw.choice([0.0, 0.5, 0.75, 1.0, 1.0])
    return score, score if draw.random() > 0.05 else draw.choice([0.0, 1.0])


def stricter(draw: random.Random) -> tuple[float, float]:
    """A second judge who finds something to object to in most answers."""
    score = draw.betavariate(5, 1)
    return score, score * (1 - 0.3 * draw.random())


def labels(draw: random.Random) -> tuple[float, float]:
    """Scores that are 0 or 1, and turn in either direction."""
    first = float(draw.random() < 0.8)
    return first, first if draw.random() > 0.15 else 1 - first


def coverage(of: Draw, truth: float, size: int, *, rounds: int = 200) -> float:
    draw, hits = random.Random(7), 0
    for _ in range(rounds):
        found = paired_difference(Pair(*of(draw), 1.0, str(number)) for number in range(size))
        assert found is not None
        hits += found.low <= truth <= found.high
    return hits / rounds


@pytest.mark.parametrize("size", [12, 50, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("of", "truth"),
    [(rarely_apart, 0.05 * (0.5 - 0.65)), (stricter, -0.15 * 5 / 6), (labels, 0.15 * (1 - 2 * 0.8))],
)
def test_the_interval_holds_the_true_difference_in_nineteen_of_twenty_samples(
    of: Draw, truth: float, size: int
) -> None:
    assert coverage(of, truth, size) >= 0.92


@given(pairs)
def test_the_difference_is_within_its_interval_and_turns_with_the_sides(found: list[Pair]) -> None:
    one = paired_difference(found)
    other = paired_difference(pair._replace(first=pair.second, second=pair.first) for pair in found)
    assert one is not None
    assert other is not None
    assert -1 <= one.low <= one.change <= one.high <= 1
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))


def test_pairs_without_a_probability_are_left_out_and_counted() -> None:
    found = paired_difference([Pair(0.0, 1.0, 1.0, "a"), Pair(1.0, 0.0, None, "b")])
    assert found is not None
    assert (found.change, found.records, found.left_out) == (1.0, (1, 1), 1)
    assert paired_difference([Pair(1.0, 0.0, None, "b")]) is None


@pytest.mark.parametrize(
    ("first", "second", "p"), [(0, 0, 1.0), (1, 0, 1.0), (5, 5, 1.0), (0, 6, 0.03125), (10, 2, 0.0385742)]
)
def test_labels_that_turn_one_way_are_tested_exactly(first: int, second: int, p: float) -> None:
    assert sign_test(first, second) == pytest.approx(p, abs=1e-6)
    assert sign_test(second, first) == sign_test(first, second)


def test_agreement_is_what_is_beyond_chance() -> None:
    # Cohen 1960's way of counting: 20 of 50 both yes, 15 both no, 5 and 10 differ
    told = {(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}
    assert agreement_beyond_chance(told) == pytest.approx(0.4)
    assert agreement_beyond_chance({(True, True): 3}) is None
    assert agreement_beyond_chance({}) is None
