"""Before judging: how much it takes to notice that quality fell, and what a sample says of a whole sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, sqrt
from typing import Final, NamedTuple

from ragtrace.stats.means import Z_95

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


class RatioTotal(NamedTuple):
    """The estimated sum over the population."""

    low: float
    """The ends of the 95 % confidence interval."""
    likely: float
    high: float


def ratio_total(pairs: Sequence[tuple[float, float]], *, population: int, size: float) -> RatioTotal:
    """Estimate the sum of all amounts from a sample, given the known sum of a related size.

    It uses the ratio estimator with the finite population correction (Cochran 1977, *Sampling Techniques*,
    2.6 and chapter 6) and Student's t. The lower end is at least the sampled sum. The spread gets one extra
    observation of three times its expected amount, in the spirit of Agresti and Coull (1998), because a small
    sample can look even by chance. The upper end is that of the logarithm's interval, because such sums are
    skewed upward.

    Args:
        pairs: Size and amount of each sampled item; the sample is random, without replacement.
        population: Number of items.
        size: The sum of all sizes.

    Raises:
        ValueError: there is no sample, it is larger than the population, or all its sizes are 0.
    """
    number, sampled = len(pairs), sum(item_size for item_size, _ in pairs)
    if not 0 < number <= population or sampled <= 0:
        raise ValueError(f"a sample of {number} of {population}, of size {sampled}, cannot estimate the sum")
    known = sum(amount for _, amount in pairs)
    if number == population or not known:
        return RatioTotal(known, known, known)
    ratio = known / sampled
    likely = known + ratio * max(0.0, size - sampled)
    residuals = (
        sum((amount - ratio * item_size) ** 2 for item_size, amount in pairs) + (2 * known / number) ** 2
    )
    variance = residuals / number / (number + 1) * (1 - number / population)
    share = _student_t_95(number) * sqrt(variance) / (known / number)
    return RatioTotal(max(known, likely * (1 - share)), likely, likely * exp(share))


def _student_t_95(freedom: int) -> float:
    """Return the 97.5 % point of Student's t (Abramowitz and Stegun 26.7.5: to 0.1 % from 3 on)."""
    z, n = Z_95, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4
