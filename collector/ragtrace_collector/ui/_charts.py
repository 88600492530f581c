"""A trend as the shapes of an SVG picture. Its text is HTML beside it: small screens do not shrink it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.answers.port import MetricTrend, TrendPoint
from ragtrace.stats import WeightedMean

WIDTH: Final = 1_000
HEIGHT: Final = 200
_LEAST_RANGE: Final = 0.2
_TICK: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    """One period of a trend, where it is in the picture."""

    x: float
    y: float
    left: float
    """Where its part of the picture begins."""
    width: float
    start_ns: int
    end_ns: int
    mean: WeightedMean
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The shapes of a trend: a line and a band in each stretch without a gap."""

    points: tuple[ChartPoint, ...]
    lines: tuple[str, ...]
    """The ``points`` of SVG polylines."""
    bands: tuple[str, ...]
    """The ``points`` of SVG polygons: the intervals."""
    low: float
    """The score at the bottom."""
    high: float
    begin_ns: int
    end_ns: int

    def place(self, at_ns: int) -> float | None:
        """Return where a time is, from left to right; ``None`` outside."""
        is_inside = self.begin_ns <= at_ns <= self.end_ns
        return WIDTH * (at_ns - self.begin_ns) / (self.end_ns - self.begin_ns) if is_inside else None

    @property
    def middle(self) -> float:
        """The score halfway up."""
        return (self.low + self.high) / 2


def chart_of(trend: MetricTrend, *, since_ns: int, until_ns: int) -> Chart:
    """Draw the means of a trend, with their intervals, over a range of time."""
    scored = [(point, point.mean) for point in trend.points if point.mean is not None]
    low, high = _range_of([mean for _, mean in scored])
    first_ns = since_ns - since_ns % trend.period_ns
    last_ns = max(until_ns, first_ns + trend.period_ns)
    scale = WIDTH / (last_ns - first_ns)
    points = tuple(
        _placed(point, mean, trend.period_ns, (first_ns, last_ns), scale, (low, high))
        for point, mean in scored
    )
    stretches = list(_stretches(points, trend.period_ns))
    return Chart(
        points=points,
        lines=tuple(" ".join(f"{each.x:.1f},{each.y:.1f}" for each in part) for part in stretches),
        bands=tuple(_band(part, low, high) for part in stretches),
        low=low,
        high=high,
        begin_ns=first_ns,
        end_ns=last_ns,
    )


def _placed(
    point: TrendPoint,
    mean: WeightedMean,
    period_ns: int,
    within: tuple[int, int],
    scale: float,
    scores: tuple[float, float],
) -> ChartPoint:
    begin = max(point.start_ns, within[0])
    end = min(point.start_ns + period_ns, within[1])
    return ChartPoint(
        x=((begin + end) / 2 - within[0]) * scale,
        y=_height(mean.mean, *scores),
        left=(begin - within[0]) * scale,
        width=max(1.0, (end - begin) * scale),
        start_ns=point.start_ns,
        end_ns=point.start_ns + period_ns,
        mean=mean,
        answers=point.answers,
    )


def _range_of(means: Sequence[WeightedMean]) -> tuple[float, float]:
    """Return the scores at the bottom and at the top: whole tenths around all intervals."""
    if not means:
        return 0.0, 1.0
    low = max(0.0, math.floor(min(mean.low for mean in means) / _TICK) * _TICK)
    high = min(1.0, math.ceil(max(mean.high for mean in means) / _TICK) * _TICK)
    if high - low < _LEAST_RANGE:
        low = max(0.0, high - _LEAST_RANGE)
        high = low + _LEAST_RANGE
    return round(low, 1), round(high, 1)


def _height(score: float, low: float, high: float) -> float:
    return HEIGHT * (1 - (score - low) / (high - low))


def _stretches(points: Sequence[ChartPoint], period_ns: int) -> Iterator[list[ChartPoint]]:
    """Yield runs of periods without a gap: a line across a gap would show what nobody measured."""
    run: list[ChartPoint] = []
    for point in points:
        if run and point.start_ns - run[-1].start_ns > period_ns:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _band(points: Sequence[ChartPoint], low: float, high: float) -> str:
    edges = [(point.x, point.x) for point in points]
    if len(points) == 1:  # as wide as its period, to be seen at all
        edges = [(points[0].left, points[0].left + points[0].width)]
    over = [
        (x, _height(point.mean.high, low, high))
        for point, pair in zip(points, edges, strict=True)
        for x in pair
    ]
    under = [
        (x, _height(point.mean.low, low, high))
        for point, pair in zip(points, edges, strict=True)
        for x in pair
    ]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in [*over, *reversed(under)])
