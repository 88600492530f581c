"""The report as a page: one self-contained HTML file, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ragtrace.quality import wording
from ragtrace.quality.report import GroupFigures, QualityReport
from ragtrace.reports.report import open_template
from ragtrace.stats import WeightedMean

_WIDTH, _LABELS, _ROW = 720, 170, 26
_TOP: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRow:
    """One interval in a chart."""

    name: str
    y: float
    low: float
    """Places from the left, as the next ones."""
    middle: float
    high: float
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """The pass rates of one metric, by group."""

    metric: str
    width: int
    height: int
    left: int
    rows: tuple[ChartRow, ...]
    ticks: tuple[tuple[float, str], ...]
    whole: ChartRow | None
    """All answers."""


def render_page(report: QualityReport) -> str:
    """Write the page. It has names of groups, and no text of answers."""
    template = open_template("quality/page.html", moment=_moment, percent=wording.percent)
    page = template.render(report=report, wording=wording, charts=_charts(report))
    return f"{page}\n"


def _charts(report: QualityReport) -> Sequence[IntervalChart]:
    if not report.groups:
        return ()
    return [
        _chart(metric.metric, report)
        for metric in report.whole.metrics
        if metric.passing and any(_passing(group, metric.metric) for group in report.groups)
    ]


def _chart(metric: str, report: QualityReport) -> IntervalChart:
    found = [(group.name, mean) for group in report.groups if (mean := _passing(group, metric))]
    whole = _passing(report.whole, metric)
    return IntervalChart(
        metric=metric,
        width=_WIDTH,
        height=_TOP + _ROW * len(found) + 8,
        left=_LABELS,
        rows=tuple(_row(name, mean, _TOP + _ROW * (at + 0.5)) for at, (name, mean) in enumerate(found)),
        ticks=tuple((_place(tick / 4), f"{25 * tick} %") for tick in range(5)),
        whole=_row("all", whole, 0) if whole else None,
    )


def _row(name: str, mean: WeightedMean, y: float) -> ChartRow:
    return ChartRow(
        name=name if len(name) <= 24 else f"{name[:23]}…",
        y=y,
        low=_place(mean.low),
        middle=_place(mean.mean),
        high=_place(mean.high),
        said=f"{name}: {wording.rate(mean)}, {mean.records:,} judged",
    )


def _place(share: float) -> float:
    return round(_LABELS + share * (_WIDTH - _LABELS - 24), 1)


def _passing(group: GroupFigures, metric: str) -> WeightedMean | None:
    found = group.metric(metric)
    return found.passing if found else None


def _moment(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC"
