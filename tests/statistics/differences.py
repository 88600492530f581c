"""How often the interval of a difference holds the truth: pairs and two samples, even and weighted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragtrace.stats import Difference, Pair, Weighed, difference_of, paired_difference, weighted_mean

Draw = Callable[[random.Random], tuple[float, float]]
ROUNDS: Final = 2_000
_MORE_OFTEN, _LESS_OFTEN = 0.5, 0.1


def passes(first: float, both: float, second: float) -> Draw:
    """Return labels of pairs: shares that pass on both sides, in A only, and in B only."""

    def draw(of: random.Random) -> tuple[float, float]:
        at = of.random()
        if at < both:
            return 1.0, 1.0
        return (1.0, 0.0) if at < both + first else (0.0, float(at < both + first + second))

    return draw


def scores(of: random.Random) -> tuple[float, float]:
    """Return scores of pairs: mostly 1 on both sides, and B a little better."""
    first = 1.0 if of.random() < 0.8 else of.betavariate(2, 2)
    return first, first if of.random() < 0.5 else 1.0 if of.random() < 0.9 else of.betavariate(2, 2)


class Case(NamedTuple):
    """What is drawn, and its true difference."""

    draw: Draw
    truth: float


CASES: Final = {
    "pass rates 0.90 and 0.90": Case(passes(0.06, 0.84, 0.06), 0.0),
    "pass rates 0.90 and 0.85": Case(passes(0.09, 0.81, 0.04), -0.05),
    "scores 0.90 and 0.93": Case(scores, 0.5 * (0.95 - 0.9)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How often the interval held the truth, and how wide it was."""

    covered: float
    width: float


def coverage(
    case: Case, number: int, *, is_paired: bool, is_weighted: bool, rounds: int = ROUNDS, seed: int = 1
) -> Found:
    """Draw so many answers, or pairs, in each round; weighted, worse ones are sampled five times as often."""
    of, hits, width = random.Random(seed), 0, 0.0
    for _ in range(rounds):
        found = (_pairs if is_paired else _samples)(case.draw, number, of, is_weighted=is_weighted)
        hits += found.low <= case.truth <= found.high
        width += found.high - found.low
    return Found(covered=hits / rounds, width=width / rounds)


def _sampled(
    draw: Draw, number: int, of: random.Random, *, is_weighted: bool
) -> Iterator[tuple[float, float, float]]:
    while number:
        first, second = draw(of)
        probability = 1.0 if not is_weighted else _MORE_OFTEN if second < 0.8 else _LESS_OFTEN
        if of.random() < probability:
            number -= 1
            yield first, second, probability


def _pairs(draw: Draw, number: int, of: random.Random, *, is_weighted: bool) -> Difference:
    found = paired_difference(
        Pair(first, second, probability, str(at))
        for at, (first, second, probability) in enumerate(_sampled(draw, number, of, is_weighted=is_weighted))
    )
    assert found is not None
    return found


def _samples(draw: Draw, number: int, of: random.Random, *, is_weighted: bool) -> Difference:
    older, newer = (
        weighted_mean(
            Weighed(values[side], values[2], str(at))
            for at, values in enumerate(_sampled(draw, number, of, is_weighted=is_weighted))
        )
        for side in (0, 1)
    )
    assert older is not None
    assert newer is not None
    return difference_of(newer, older)


if __name__ == "__main__":
    for name, case in CASES.items():
        for is_paired in (True, False):
            for is_weighted in (False, True):
                told = [
                    (size, coverage(case, size, is_paired=is_paired, is_weighted=is_weighted))
                    for size in (25, 50, 100, 200, 1_000)
                ]
                kind = f"{'pairs' if is_paired else 'samples'}, {'weighted' if is_weighted else 'even'}"
                said = ", ".join(
                    f"{size}: {found.covered:.1%} (width {found.width:.3f})" for size, found in told
                )
                print(f"{name}, {kind}: {said}", flush=True)
