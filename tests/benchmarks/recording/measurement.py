"""A ratio of one run: what ragtrace takes, divided by what a named alternative takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Better", "Measurement"]


class Better(StrEnum):
    """Which way a ratio should go."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A ratio, once for each round of a run."""

    what: str
    """What was measured, and of which quantity: ``evaluate --help, CPU``."""
    alternative: str
    """What it was divided by, measured in the same round: ``python -c 'import click'``."""
    ratios: tuple[float, ...]
    """One for each round."""
    better: Better = Better.LOWER
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the alternative's packages."""

    def __post_init__(self) -> None:
        """Refuse what is no ratio."""
        if not self.ratios:
            raise ValueError(f"{self.what!r} was measured in no round")
        if min(self.ratios) <= 0:
            raise ValueError(f"{self.what!r} has a ratio that is not above zero: {min(self.ratios)}")
