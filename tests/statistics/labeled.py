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
from functools import cache
from pathlib import Path
from typing import Final

from ragtrace.stats import PredictedAnswer, predicted_mean

SETS: Final = ("qa", "summary")
CHEAP: Final = ("lexical_score", "coverage", "support", "unsuspicious")
TRUE: Final = ("human_score", "human_pass")
_LABELED, _SPLITS = 0.25, 400


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
    """Return the answers of a set."""
    with Path(__file__).with_name("ragtruth_scores.csv").open() as file:
        return tuple(row for row in csv.DictReader(file) if row["set"] == name)


def saving(name: str, *, cheap: str, true: str) -> Saving:
    """Draw many samples of labeled answers, and estimate the mean of all with and without the cheap judge."""
    everything = rows(name)
    known = [float(row[cheap]) for row in everything if row[cheap]]
    middle = sum(known) / len(known)
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
        found = predicted_mean(answers)
        assert found is not None
        covered += found.low <= target <= found.high
        labeled += found.joined
        narrower += 1 - found.factor**-0.5
    return Saving(
        answers=len(values),
        labeled=labeled / _SPLITS,
        covered=covered / _SPLITS,
        narrower=narrower / _SPLITS,
    )
