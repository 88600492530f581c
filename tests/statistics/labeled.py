"""Prediction-powered means on answers that people labeled: what a judge without a key saves.

``ragtruth_scores.csv`` has numbers of the development split of RAGTruth (MIT), and no text: the share of
sentences that people find supported, whether all are, the score of the former judge (lexical-v2, empty
if it abstained), and the mean share of a sentence's content words that are in the passages. Of lexical-v3,
out of fold by source document, it has the mean probability of support, and one minus the suspicion. People
stand for the better judge.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from ragtrace.sampling import SuspicionRate
from ragtrace.stats import PredictedAnswer, Weighed, predicted_mean, weighted_mean
from tests.statistics.coverage import known

SETS: Final = ("qa", "summary")
CHEAP: Final = ("lexical_score", "coverage", "support", "unsuspicious")
TRUE: Final = ("human_score", "human_pass")
_LABELED, _SPLITS = 0.25, 400
_ANSWERS_A_WEEK: Final = 4_000
RATES: Final = {
    "every answer alike": None,
    "for averages": (0.005, SuspicionRate(to=0.08, power=0.5)),
    "for finding flawed answers": (0.02, SuspicionRate(to=1.0, power=3)),
    "for finding, at most": (0.02, SuspicionRate(to=1.0, power=6)),
    "for finding alone": (0.005, SuspicionRate(to=1.0, power=8)),
}
"""Ratio and rate by suspicion, as `sample` of a collector's configuration has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What a cheap judge saves, over many random samples of labeled answers."""

    answers: int
    labeled: float
    """Mean number of labeled answers in a sample."""
    covered: float
    """The share of samples whose interval holds the mean of all labels."""
    narrower: float
    """How much smaller the standard error is than without the cheap judge: 0.3 is 30 %."""


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    with Path(__file__).with_name("ragtruth_scores.csv").open() as file:
        return tuple(row for row in csv.DictReader(file) if row["set"] == name)


def saving(name: str, *, cheap: str, true: str) -> Saving:
    """Draw many samples of labeled answers, and estimate the mean of all with and without the cheap judge."""
    everything = rows(name)
    given = [float(row[cheap]) for row in everything if row[cheap]]
    middle = sum(given) / len(given)
    values = [(float(row[cheap] or middle), float(row[true])) for row in everything]
    target = sum(value for _, value in values) / len(values)
    draw = random.Random(0)
    covered, labeled, narrower = 0, 0, 0.0
    for _ in range(_SPLITS):
        answers = [
            PredictedAnswer(cheap_value, 1.0, value, _LABELED, str(at))
            if draw.random() < _LABELED
            else PredictedAnswer(cheap_value, 1.0, None, None, str(at))
            for at, (cheap_value, value) in enumerate(values)
        ]
        found = known(predicted_mean(answers))
        covered += found.low <= target <= found.high
        labeled += found.joined
        narrower += 1 - found.factor**-0.5
    return Saving(
        answers=len(values), labeled=labeled / _SPLITS, covered=covered / _SPLITS, narrower=narrower / _SPLITS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What sampling by suspicion gives, over many weeks of answers drawn from the labeled ones."""

    judged: float
    """The share of answers that the better judge is asked about."""
    flawed: float
    """The share of flawed answers among these."""
    flawed_of_all: float
    narrower: float
    """How much shorter the joined interval is than that of as many answers drawn alike, judged alone."""
    covered: float
    """The share of weeks whose joined interval holds the mean of all labels."""


def sampled(name: str, *, true: str, plan: tuple[float, SuspicionRate] | None, weeks: int = 100) -> Sampled:
    """Sample weeks by suspicion, and alike at the same number of judged answers."""
    labeled = [(1 - float(row["unsuspicious"]), float(row[true])) for row in rows(name)]
    rate = partial(_rate, plan)
    judged = sum(rate(suspicion) for suspicion, _ in labeled) / len(labeled)
    target = sum(value for _, value in labeled) / len(labeled)
    draw = random.Random(0)
    covered, joined_width, alike_width = 0, 0.0, 0.0
    for _ in range(weeks):
        week = draw.choices(labeled, k=_ANSWERS_A_WEEK)
        joined = known(
            predicted_mean(
                PredictedAnswer(1 - suspicion, 1.0, *_if_drawn(draw, value, rate(suspicion)), str(at))
                for at, (suspicion, value) in enumerate(week)
            )
        )
        drawn = [(at, value) for at, (_, value) in enumerate(week) if draw.random() < judged]
        alike = known(weighted_mean(Weighed(value, judged, str(at)) for at, value in drawn))
        covered += joined.low <= target <= joined.high
        joined_width += joined.high - joined.low
        alike_width += alike.high - alike.low
    flawed = [suspicion for suspicion, value in labeled if value < 1]
    return Sampled(
        judged=judged,
        flawed=sum(map(rate, flawed)) / (judged * len(labeled)),
        flawed_of_all=len(flawed) / len(labeled),
        narrower=1 - joined_width / alike_width,
        covered=covered / weeks,
    )


def _rate(plan: tuple[float, SuspicionRate] | None, suspicion: float) -> float:
    return 0.05 if plan is None else plan[1].rate(suspicion, ratio=plan[0])


def _if_drawn(draw: random.Random, value: float, rate: float) -> tuple[float, float] | tuple[None, None]:
    return (value, rate) if draw.random() < rate else (None, None)
