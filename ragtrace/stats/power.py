"""How much judging it takes to notice that quality fell."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from ragtrace.stats.intervals import Z_95

Z_POWER: Final = 0.8416212335729143
"""The 80 % point of the normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionEffort:
    """What it takes to detect a drop of a pass rate."""

    drop: float
    answers: int
    """Judged answers in each of the two periods that are compared."""
    dollars: float | None
    """For the answers of one period; ``None`` if the cost of an answer is unknown."""
    days: float | None
    """Until so many are judged; ``None`` if nothing tells how many are judged a day."""


def detection_effort(
    rate: float,
    drop: float,
    *,
    design_effect: float = 1.0,
    dollars_an_answer: float | None = None,
    answers_a_day: float | None = None,
) -> DetectionEffort | None:
    """Say what it takes to detect that a pass rate falls by ``drop``; ``None`` if it cannot fall so far.

    Two periods with as many answers are compared by a two-sided test at the 5 % level that finds the drop in
    80 % of cases (Fleiss, Levin and Paik 2003, *Statistical methods for rates and proportions*, 4.1). Unequal
    sampling probabilities and answers that share a trace multiply the number by the design effect (Kish
    1965): the number of answers over the sample size of their interval.

    Raises:
        ValueError: the drop is not between 0 and 1, or the design effect is not positive.
    """
    if not (0 < drop < 1 and design_effect > 0):
        raise ValueError(f"a drop of {drop} with a design effect of {design_effect} cannot be detected")
    after = rate - drop
    if after < 0:
        return None
    middle = (rate + after) / 2
    spread = Z_95 * (2 * middle * (1 - middle)) ** 0.5
    spread += Z_POWER * (rate * (1 - rate) + after * (1 - after)) ** 0.5
    answers = ceil(spread**2 / drop**2 * design_effect)
    return DetectionEffort(
        drop=drop,
        answers=answers,
        dollars=None if dollars_an_answer is None else answers * dollars_an_answer,
        days=answers / answers_a_day if answers_a_day else None,
    )
