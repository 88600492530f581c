"""How often the interval of a difference holds the truth: pairs and two samples, even and weighted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import exp, lgamma, log, sqrt
from typing import Final

from ragtrace.stats import Difference, Pair, Weighed, difference_of, paired_difference, weighted_mean
from tests.statistics.coverage import known

Draw = Callable[[random.Random], tuple[float, float]]
ROUNDS: Final = 2_000
_MORE_OFTEN, _LESS_OFTEN = 0.5, 0.1
FEW_TURNS: Final = 5
"""Where fewer pairs turn on average, hardly any interval can hold the truth as seldom as in 95 %."""


def shares() -> Iterator[tuple[float, float, float]]:
    """Yield the truths of labels: shares that pass in A only, in both, in B only. B is no better than A."""
    for first in (0.6, 0.75, 0.85, 0.9, 0.95):
        for less in (0.0, 0.05, 0.17):
            second = first - less
            for alike in (0.0, 0.3, 0.6):
                both = first * second + alike * sqrt(first * (1 - first) * second * (1 - second))
                if both < second:
                    yield first - both, both, second - both


def exact_coverage(number: int, truth: tuple[float, float, float], *, is_paired: bool) -> float:
    """Return how often the interval of even labels holds the truth: the sum over all that can be drawn."""
    only_first, both, only_second = truth
    if is_paired:
        likely = {
            (falls, rises): _chance(number, (only_first, falls), (only_second, rises))
            for falls in range(number + 1)
            for rises in range(number + 1 - falls)
        }
    else:
        of_first, of_second = (
            [_chance(number, (share, passing)) for passing in range(number + 1)]
            for share in (only_first + both, only_second + both)
        )
        likely = {
            (at, to): one * other for at, one in enumerate(of_first) for to, other in enumerate(of_second)
        }
    change = only_second - only_first
    return sum(
        chance
        for drawn, chance in likely.items()
        if chance > 1e-9
        for low, high in [_ends_of_pairs(number, *drawn) if is_paired else _ends_of_samples(number, *drawn)]
        if low - 1e-9 <= change <= high + 1e-9
    )


def _chance(number: int, *drawn: tuple[float, int]) -> float:
    """Return the multinomial probability of so many of each share; the rest is the rest."""
    rest = (1 - sum(share for share, _ in drawn), number - sum(times for _, times in drawn))
    found = lgamma(number + 1)
    for share, times in (*drawn, rest):
        found += times * log(max(share, 1e-300)) - lgamma(times + 1)
    return exp(found)


@cache
def _ends_of_pairs(number: int, falls: int, rises: int) -> tuple[float, float]:
    labels = [(1.0, 0.0)] * falls + [(0.0, 1.0)] * rises + [(1.0, 1.0)] * (number - falls - rises)
    found = known(paired_difference(Pair(*each, 1.0, str(at)) for at, each in enumerate(labels)))
    return found.low, found.high


@cache
def _ends_of_samples(number: int, first: int, second: int) -> tuple[float, float]:
    older, newer = (
        known(weighted_mean(Weighed(float(at < passing), 1.0, str(at)) for at in range(number)))
        for passing in (first, second)
    )
    found = difference_of(newer, older)
    return found.low, found.high


def labels(only_first: float, both: float, only_second: float) -> Draw:

    def draw(of: random.Random) -> tuple[float, float]:
        at = of.random() - both
        return (1.0, 1.0) if at < 0 else (float(at < only_first), float(0 <= at - only_first < only_second))

    return draw


def scores(of: random.Random) -> tuple[float, float]:
    """Draw scores of pairs: mostly 1 on both sides, and B a little better."""
    first = 1.0 if of.random() < 0.8 else of.betavariate(2, 2)
    return first, first if of.random() < 0.5 else 1.0 if of.random() < 0.9 else of.betavariate(2, 2)


DRAWN: Final[dict[str, tuple[Draw, float]]] = {
    "pass rates 0.60 and 0.60": (labels(0.12, 0.48, 0.12), 0.0),
    "pass rates 0.90 and 0.90": (labels(0.06, 0.84, 0.06), 0.0),
    "pass rates 0.90 and 0.85": (labels(0.09, 0.81, 0.04), -0.05),
    "pass rates 0.95 and 0.78": (labels(0.19, 0.76, 0.02), -0.17),
    "scores 0.90 and 0.93": (scores, 0.5 * (0.95 - 0.9)),
}
"""What is drawn by chance, and its true difference."""


def coverage(name: str, number: int, *, is_paired: bool, is_weighted: bool, rounds: int = ROUNDS) -> float:
    """Draw so many answers, or pairs, in each round; weighted, worse ones are sampled five times as often."""
    of, (draw, truth), hits = random.Random(1), DRAWN[name], 0
    for _ in range(rounds):
        drawn = list(_sampled(draw, number, of, is_weighted=is_weighted))
        other = drawn if is_paired else list(_sampled(draw, number, of, is_weighted=is_weighted))
        found = _pairs(drawn) if is_paired else _samples(drawn, other)
        hits += found.low <= truth <= found.high
    return hits / rounds


def _sampled(
    draw: Draw, number: int, of: random.Random, *, is_weighted: bool
) -> Iterator[tuple[float, float, float]]:
    while number:
        first, second = draw(of)
        probability = 1.0 if not is_weighted else _MORE_OFTEN if second < 0.8 else _LESS_OFTEN
        if of.random() < probability:
            number -= 1
            yield first, second, probability


def _pairs(drawn: Sequence[tuple[float, float, float]]) -> Difference:
    return known(paired_difference(Pair(*each, str(at)) for at, each in enumerate(drawn)))


def _samples(*sides: Sequence[tuple[float, float, float]]) -> Difference:
    older, newer = (
        known(weighted_mean(Weighed(each[side], each[2], str(at)) for at, each in enumerate(drawn)))
        for side, drawn in enumerate(sides)
    )
    return difference_of(newer, older)


def lines() -> Iterator[tuple[str, bool]]:
    """Yield what was found, and whether it is as it should be."""
    for is_paired in (True, False):
        kind = "pairs" if is_paired else "samples"
        for size in (30, 50, 100, 200):
            found = [(exact_coverage(size, truth, is_paired=is_paired), truth) for truth in shares()]
            many = [held for held, (falls, _, rises) in found if (falls + rises) * size >= FEW_TURNS]
            told = f"{min(many):.1%} to {max(many):.1%}, with few turns {max(found)[0]:.1%}"
            is_kept = min(found)[0] >= 0.94 and max(many) <= 0.965
            yield f"{kind} of {size}, even labels, exactly: {told}", is_kept
        for name in DRAWN:
            for is_weighted in (False, True):
                held = {
                    size: coverage(name, size, is_paired=is_paired, is_weighted=is_weighted)
                    for size in (30, 50, 100, 200, 1_000)
                }
                told = ", ".join(f"{size}: {share:.1%}" for size, share in held.items())
                is_kept = held[50] >= 0.915 and 0.93 <= held[200] <= 0.97
                yield f"{name}, {kind}, {'weighted' if is_weighted else 'even'}: {told}", is_kept


if __name__ == "__main__":
    print("\n".join(line for line, _ in lines()))
