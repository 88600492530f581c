"""A benchmark's plot: a line for each ratio on one logarithmic axis, with its band and its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from math import ceil, floor, log10
from typing import Final

from tests.benchmarks.page.latest import Chapter, Row
from tests.benchmarks.recording.result import shown_ratio

__all__ = ["svg_of"]

_WIDTH: Final = 860
_LEFT: Final = 330
_RIGHT: Final = 790
_ROW: Final = 22
_HEADING: Final = 30
_BOTTOM: Final = 34
_LONGEST: Final = 50
_MOST_TICKS: Final = 10
_STEPS: Final = (
    (1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1,),
)
"""Ticks of a decade, from many to few."""
_STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.heading { font-weight: 600; }
.number, .tick { font-variant-numeric: tabular-nums; }
.tick { fill: #57606a; text-anchor: middle; }
.grid { stroke: #d0d7de; }
.one { stroke: #57606a; stroke-dasharray: 4 3; }
.band { fill: #0969da; opacity: 0.14; }
.run { fill: #0969da; opacity: 0.3; }
.spread { stroke: #0969da; stroke-width: 2; }
.last { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .tick { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .one { stroke: #9198a1; }
  .band, .run, .last { fill: #4493f8; }
  .spread { stroke: #4493f8; }
}
"""


class _Axis:
    """From ratios to places."""

    def __init__(self, ratios: Sequence[float]) -> None:
        low, high = min(1.0, *ratios) / 1.06, max(1.0, *ratios) * 1.06
        self._low, self._span = log10(low), log10(high) - log10(low)
        self.ticks = _ticks(low, high)

    def x(self, ratio: float) -> float:
        return round(_LEFT + (log10(ratio) - self._low) / self._span * (_RIGHT - _LEFT), 1)


def _ticks(low: float, high: float) -> list[float]:
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for steps in _STEPS:
        ticks = [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    return ticks


def svg_of(chapter: Chapter) -> str:
    """Return the plot as an SVG file."""
    axis = _Axis([ratio for row in chapter.rows for ratio in _ratios(row)])
    drawn, y = [], 4
    for alternative, rows in groupby(chapter.rows, key=lambda row: row.last.alternative):
        drawn.append(f'<text class="heading" x="4" y="{y + 18}">{escape(f"times {alternative}")}</text>')
        y += _HEADING
        for row in rows:
            drawn += _drawn(row, axis, y)
            y += _ROW
    height = y + _BOTTOM
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(chapter.name)}: ratios of the last run, of earlier runs, and their bands</title>",
        f"<style>{_STYLE}</style>",
        *_grid(axis, y),
        *drawn,
        "</svg>",
    )
    return "\n".join(lines) + "\n"


def _ratios(row: Row) -> Iterator[float]:
    yield from (each.median for each in row.earlier)
    yield from (row.last.median, *row.last.quartiles)
    if band := row.comparison.band:
        yield band.high
        if band.low > 0:
            yield band.low


def _grid(axis: _Axis, bottom: int) -> Iterator[str]:
    for tick in axis.ticks:
        x = axis.x(tick)
        kind = "one" if tick == 1 else "grid"
        yield f'<line class="{kind}" x1="{x}" y1="{_HEADING}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{x}" y="{bottom + 16}">{tick:g}</text>'


def _drawn(row: Row, axis: _Axis, y: int) -> Iterator[str]:
    middle, last, band = y + _ROW / 2, row.last, row.comparison.band
    name = last.what if len(last.what) <= _LONGEST else f"{last.what[: _LONGEST - 1]}…"
    yield f'<text x="16" y="{middle + 4}">{escape(name)}</text>'
    if band:
        left = axis.x(band.low) if band.low > 0 else float(_LEFT)
        width = round(axis.x(band.high) - left, 1)
        yield f'<rect class="band" x="{left}" y="{y + 3}" width="{width}" height="{_ROW - 6}"/>'
    yield from (
        f'<circle class="run" cx="{axis.x(each.median)}" cy="{middle}" r="3"/>' for each in row.earlier
    )
    low, high = map(axis.x, last.quartiles)
    yield f'<line class="spread" x1="{low}" y1="{middle}" x2="{high}" y2="{middle}"/>'
    yield f'<circle class="last" cx="{axis.x(last.median)}" cy="{middle}" r="4.5"/>'
    yield f'<text class="number" x="{_RIGHT + 12}" y="{middle + 4}">{shown_ratio(last.median)}</text>'
