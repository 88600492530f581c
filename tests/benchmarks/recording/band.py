"""The band of a ratio's history, and where a new run lies.

The band is the median of the last `MOST_RUNS` runs on the same kind of machine and Python, plus and minus the
larger of `WIDTH` standard deviations (estimated from the median absolute deviation, so that one odd run
does not widen it) and `LEAST_WIDTH` of the median. Runs that others disturbed count only while there are
fewer than `LEAST_RUNS` quiet ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.benchmarks.recording.entry import Entry
from tests.benchmarks.recording.measurement import Better

__all__ = ["LEAST_RUNS", "Band", "Comparison", "Place", "band_of", "compare"]

LEAST_RUNS: Final = 5
MOST_RUNS: Final = 20
WIDTH: Final = 4.0
LEAST_WIDTH: Final = 0.1
_DEVIATIONS_OF_MAD: Final = 1.4826
"""Of a normal distribution: its standard deviation, divided by its median absolute deviation."""


class Place(StrEnum):
    """Where a run lies."""

    WITHIN = "within"
    BETTER = "better"
    WORSE = "WORSE"
    UNKNOWN = "not enough history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Where a ratio is expected."""

    low: float
    middle: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run beside its history."""

    entry: Entry
    band: Band | None
    """``None`` if there are fewer than `LEAST_RUNS` runs."""
    runs: int
    """That could be compared."""

    @property
    def place(self) -> Place:
        """Where the run lies. On an edge of the band is within it."""
        if self.band is None:
            return Place.UNKNOWN
        if self.band.low <= self.entry.median <= self.band.high:
            return Place.WITHIN
        is_lower = self.entry.median < self.band.low
        return Place.BETTER if is_lower == (self.entry.better is Better.LOWER) else Place.WORSE


def band_of(medians: Sequence[float]) -> Band | None:
    """Return the band of runs, the oldest first; ``None`` if they are too few."""
    last = medians[-MOST_RUNS:]
    if len(last) < LEAST_RUNS:
        return None
    middle = statistics.median(last)
    mad = statistics.median(abs(each - middle) for each in last)
    half = max(WIDTH * _DEVIATIONS_OF_MAD * mad, LEAST_WIDTH * abs(middle))
    return Band(low=middle - half, middle=middle, high=middle + half, runs=len(last))


def compare(entry: Entry, history: Sequence[Entry]) -> Comparison:
    """Compare a run with the runs of the same ratio, on the same kind of machine and Python."""
    alike = [each for each in history if each.series == entry.series and each.kind == entry.kind]
    quiet = [each for each in alike if not each.is_disturbed]
    runs = quiet if len(quiet) >= LEAST_RUNS else alike
    return Comparison(entry=entry, band=band_of([each.median for each in runs]), runs=len(runs))
