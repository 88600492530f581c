"""Which answers are measured: all, or a sample in which unsupported claims are not rare."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ragtrace.calibration.labeled_data import LabeledAnswer


def draw(answers: Sequence[LabeledAnswer], limit: int | None, *, seed: int) -> list[LabeledAnswer]:
    """Return at most ``limit`` answers in a random order, half of them with an unsupported claim.

    Where one half has too few, the other fills up. The order is random so that a run that is stopped has
    measured a sample too. Who draws the two halves at unlike rates must weight them: see
    [`results`][ragtrace.calibration.results].
    """
    drawn = random.Random(seed)
    flawed = [answer for answer in answers if answer.has_unsupported]
    clean = [answer for answer in answers if not answer.has_unsupported]
    size = len(answers) if limit is None else min(limit, len(answers))
    of_flawed = max(min(len(flawed), (size + 1) // 2), size - len(clean)) if limit else len(flawed)
    chosen = drawn.sample(flawed, of_flawed) + drawn.sample(clean, size - of_flawed)
    return drawn.sample(chosen, size)
