"""Sampling by suspicion, on answers that people labeled: what it finds, and what it costs averages.

``ragtruth_scores.csv`` has numbers of the development split of RAGTruth (MIT), and no text: the share of
sentences that people find supported, whether all are, and, of lexical-v3 out of fold by source document, one
minus the suspicion.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from ragtrace.sampling import SuspicionRate
from ragtrace.stats import Weighed, weighted_mean
from tests.statistics.coverage import known

SETS: Final = ("qa", "summary")
TRUE: Final = ("human_score", "human_pass")
_ANSWERS_A_WEEK: Final = 4_000
RATES: Final = {
    "every answer alike": None,
    "for averages": (0.005, SuspicionRate(to=0.08, power=0.5)),
    "for finding flawed answers": (0.02, SuspicionRate(to=1.0, power=3)),
    "for finding, at most": (0.02, SuspicionRate(to=1.0, power=6)),
    "for finding alone": (0.005, SuspicionRate(to=1.0, power=8)),
}
"""Ratio and rate by suspicion, as `sample` of a collector's configuration has them."""


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    with Path(__file__).with_name("ragtruth_scores.csv").open() as file:
        return tuple(row for row in csv.DictReader(file) if row["set"] == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What sampling by suspicion gives, over many weeks of answers drawn from the labeled ones."""

    judged: float
    """The share of answers that the better judge is asked about."""
    flawed: float
    """The share of flawed answers among these."""
    flawed_of_all: float
    narrower: float
    """How much shorter the interval is than that of as many answers drawn alike."""
    covered: float
    """The share of weeks whose interval holds the mean of all labels."""


def sampled(name: str, *, true: str, plan: tuple[float, SuspicionRate] | None, weeks: int = 100) -> Sampled:
    """Sample weeks by suspicion, and alike at the same number of judged answers."""
    labeled = [(1 - float(row["unsuspicious"]), float(row[true])) for row in rows(name)]
    rate = partial(_rate, plan)
    judged = sum(rate(suspicion) for suspicion, _ in labeled) / len(labeled)
    target = sum(value for _, value in labeled) / len(labeled)
    draw = random.Random(0)
    covered, width, alike_width = 0, 0.0, 0.0
    for _ in range(weeks):
        week = draw.choices(labeled, k=_ANSWERS_A_WEEK)
        chosen = [
            Weighed(value, rate(suspicion), str(at))
            for at, (suspicion, value) in enumerate(week)
            if draw.random() < rate(suspicion)
        ]
        found = known(weighted_mean(chosen))
        drawn = [(at, value) for at, (_, value) in enumerate(week) if draw.random() < judged]
        alike = known(weighted_mean(Weighed(value, judged, str(at)) for at, value in drawn))
        covered += found.low <= target <= found.high
        width += found.high - found.low
        alike_width += alike.high - alike.low
    flawed = [suspicion for suspicion, value in labeled if value < 1]
    return Sampled(
        judged=judged,
        flawed=sum(map(rate, flawed)) / (judged * len(labeled)),
        flawed_of_all=len(flawed) / len(labeled),
        narrower=1 - width / alike_width,
        covered=covered / weeks,
    )


def _rate(plan: tuple[float, SuspicionRate] | None, suspicion: float) -> float:
    return 0.05 if plan is None else plan[1].rate(suspicion, ratio=plan[0])
