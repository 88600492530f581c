"""All mutants, by promise. A new one goes into the module of its promise, and nowhere else."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.promises import (
    access,
    answer_page,
    blame,
    capture,
    conversations,
    delivery,
    durability,
    index,
    judging,
    limits,
    opening,
    reviews,
    sampling,
    startup,
    statistics,
    strangers,
    work,
)

__all__ = ["CATALOGUE"]

CATALOGUE: Final[tuple[Mutant, ...]] = (
    *durability.MUTANTS,
    *work.MUTANTS,
    *index.MUTANTS,
    *delivery.MUTANTS,
    *access.MUTANTS,
    *limits.MUTANTS,
    *sampling.MUTANTS,
    *statistics.MUTANTS,
    *judging.MUTANTS,
    *opening.MUTANTS,
    *answer_page.MUTANTS,
    *reviews.MUTANTS,
    *blame.MUTANTS,
    *capture.MUTANTS,
    *conversations.MUTANTS,
    *startup.MUTANTS,
    *strangers.MUTANTS,
)
