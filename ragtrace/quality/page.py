"""The report as a page: one self-contained HTML file, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ragtrace.quality import wording
from ragtrace.quality.report import GroupFigures, QualityReport
from ragtrace.reports.report import open_template
from ragtrace.stats import WeightedMean

_WIDTH, _LABELS, _ROW = 720, 170, 26
_TOP: Final = 24


def render_page(report: QualityReport) -> str:
    """Write the page. It has names of groups, and no text of answers."""
    template = open_template("quality/page.html", moment=_moment, percent=wording.percent)
    page = template.render(report=report, wording=wording, charts=_charts(report))
    return f"{page}\n"


def _charts(report: QualityReport) -> Sequence[Mapping[str, Any]]:
    """Return the pass rates of each metric by group, and of all answers, laid out."""
    return [
        _chart(metric.metric, report)
        for metric in report.whole.metrics
        if metric.passing and any(_passing(group, metric.metric) for group in report.groups)
    ]


def _chart(metric: str, report: QualityReport) -> Mapping[str, Any]:
    found = [(group.name, mean) for group in report.groups if (mean := _passing(group, metric))]
    whole = _passing(report.whole, metric)
    return {
        "metric": metric,
        "width": _WIDTH,
        "height": _TOP + _ROW * len(found) + 8,
        "left": _LABELS,
        "rows": [_row(name, mean, _TOP + _ROW * (at + 0.5)) for at, (name, mean) in enumerate(found)],
        "ticks": [(_place(tick / 4), f"{25 * tick} %") for tick in range(5)],
        "whole": _row("all", whole, 0) if whole else None,
    }


def _row(name: str, mean: WeightedMean, y: float) -> Mapping[str, Any]:
    return {
        "name": name if len(name) <= 24 else f"{name[:23]}…",
        "y": y,
        "low": _place(mean.low),
        "middle": _place(mean.mean),
        "high": _place(mean.high),
        "said": f"{name}: {wording.rate(mean)}, {mean.records:,} judged",
    }


def _place(share: float) -> float:
    return round(_LABELS + share * (_WIDTH - _LABELS - 24), 1)


def _passing(group: GroupFigures, metric: str) -> WeightedMean | None:
    found = group.metric(metric)
    return found.passing if found else None


def _moment(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC"
