"""The layout of a score histogram, which a template draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.reports._totals import HistogramBin
from ragtrace.stats import WeightedMean

WIDTH: Final = 420
HEIGHT: Final = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 12, 34, 26
_GAP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramBar:
    """A bar with its bin."""

    x: float
    y: float
    width: float
    height: float
    of: HistogramBin


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The whole histogram, in its own units."""

    bars: tuple[HistogramBar, ...]
    highest: float
    """The share at the top line."""
    threshold: float | None
    mean: tuple[float, float, float] | None
    """The mean between the ends of its interval."""
    ticks: tuple[tuple[float, str], ...]
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def draw(bins: Sequence[HistogramBin], mean: WeightedMean | None, *, threshold: float | None) -> Histogram:
    """Lay out the bars, the threshold if there is one, and the mean with its interval."""
    highest = max((bin_.share for bin_ in bins), default=0.0) or 1.0
    return Histogram(
        bars=tuple(_bar(bin_, highest) for bin_ in bins if bin_.answers),
        highest=highest,
        threshold=None if threshold is None else _x(threshold),
        mean=(_x(mean.low), _x(mean.mean), _x(mean.high)) if mean else None,
        ticks=tuple((_x(at / 4), f"{at / 4:g}") for at in range(5)),
    )


def _bar(each: HistogramBin, highest: float) -> HistogramBar:
    room = HEIGHT - _BOTTOM - _TOP
    height = max(1.0, room * each.share / highest)
    return HistogramBar(
        x=round(_x(each.low) + _GAP / 2, 2),
        y=round(HEIGHT - _BOTTOM - height, 2),
        width=round(_x(each.high) - _x(each.low) - _GAP, 2),
        height=round(height, 2),
        of=each,
    )


def _x(score: float) -> float:
    return round(_LEFT + score * (WIDTH - _LEFT - _RIGHT), 2)
