"""Judged answers for the tests of reports."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ragtrace.answers.summary import AnswerSummary, MetricSummary
from ragtrace.model import Label
from tests.unit.answers.rows import a_row

LEXICAL, MODEL = "lexical:lexical-v2", "openai:gpt-4o-mini"


def judged(number: int, score: float | None, **fields: object) -> AnswerSummary:
    """Return an answer with one metric; without a score it failed."""
    label = Label.ERROR if score is None else Label.PASS if score >= 0.8 else Label.FAIL
    metric = MetricSummary(name="faithfulness", label=label, score=score)
    given = {"metrics": (metric,), "label": label, "judge": MODEL, **fields}
    return a_row(number, minute=number, **given)


def drawn(answers: int, seed: int) -> Iterator[tuple[int, float, float, bool]]:
    """Yield number, score, probability and whether it is sampled: three in four pass, bad ones more often."""
    draw = random.Random(seed)
    for number in range(1, answers + 1):
        score = 1.0 if draw.random() < 0.75 else round(draw.uniform(0, 0.79), 2)
        probability = 0.2 if score == 1 else 0.6
        yield number, score, probability, draw.random() < probability


def traffic(answers: int, *, seed: int = 1, **fields: object) -> Iterator[AnswerSummary]:
    """Yield the sampled ones."""
    for number, score, probability, is_sampled in drawn(answers, seed):
        if is_sampled:
            yield judged(number, score, **{"probability": probability, "cost_usd": 0.002, **fields})


def by_both(answers: int, *, seed: int = 1) -> Iterator[AnswerSummary]:
    """Yield what a cheap judge says of every answer, and what a better one says of the sampled ones."""
    noise = random.Random(seed)
    for number, score, probability, is_sampled in drawn(answers, seed):
        cheap = min(1.0, max(0.0, score + noise.gauss(0, 0.05)))
        yield judged(number, cheap, judge=LEXICAL, probability=1.0, carrier=5_000_000 + number)
        if is_sampled:
            yield judged(number, score, probability=probability)
