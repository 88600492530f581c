"""Chooses the answers to measure: all, or a sample enriched with unsupported claims."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ragtrace.labeled_data import LabeledAnswer


def draw(answers: Sequence[LabeledAnswer], limit: int | None, *, seed: int) -> list[LabeledAnswer]:
    """Return at most ``limit`` answers in a random order, half of them with an unsupported claim.

    If one half has too few, the other fills up. The order is random, so that an interrupted run is a sample
    too. If the two halves have different rates, results must be weighted: see
    [`results`][ragtrace.calibration.results].
    """
    drawn = random.Random(seed)
    flawed = [answer for answer in answers if answer.has_unsupported]
    clean = [answer for answer in answers if not answer.has_unsupported]
    size = len(answers) if limit is None else min(limit, len(answers))
    of_flawed = max(min(len(flawed), (size + 1) // 2), size - len(clean)) if limit else len(flawed)
    chosen = drawn.sample(flawed, of_flawed) + drawn.sample(clean, size - of_flawed)
    return drawn.sample(chosen, size)
