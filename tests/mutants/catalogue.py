"""All mutants, by promise. A new one goes into the module of its promise, and nowhere else."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.promises import (
    access,
    capture,
    delivery,
    durability,
    judging,
    sampling,
    statistics,
    strangers,
    work,
)

__all__ = ["CATALOGUE"]

CATALOGUE: Final[tuple[Mutant, ...]] = (
    *durability.MUTANTS,
    *work.MUTANTS,
    *delivery.MUTANTS,
    *access.MUTANTS,
    *sampling.MUTANTS,
    *statistics.MUTANTS,
    *judging.MUTANTS,
    *capture.MUTANTS,
    *strangers.MUTANTS,
)
