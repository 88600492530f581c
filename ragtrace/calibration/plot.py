"""The layout of a measurement's plots, which the page's template draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, sqrt
from typing import Final

from ragtrace.calibration.results import CandidateResult, GroupResult, Results

_WIDTH: Final = 820
_ROW: Final = 22
_LEFT, _RIGHT, _TOP, _BOTTOM = 300, 60, 24, 40
_LONGEST_NAME: Final = 44
_COLORS: Final = 4
_LOWEST: Final = 0.3
"""Where the axis of accuracies begins, unless one is lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRow:
    """A line of the plot: the name of a file, or a judge's accuracy with its interval."""

    y: float
    label: str
    color: str = ""
    """The class of the judge's marks; empty for the name of a file."""
    value: float | None = None
    x: float = 0.0
    interval: tuple[float, float] | None = None

    @property
    def short_label(self) -> str:
        """The label, cut to what the column has room for."""
        return self.label if len(self.label) <= _LONGEST_NAME else f"{self.label[: _LONGEST_NAME - 1]}…"

    @property
    def end(self) -> float:
        """Where the marks end."""
        return self.interval[1] if self.interval else self.x


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyPlot:
    """Balanced accuracies of each judge, by file."""

    rows: tuple[AccuracyRow, ...]
    ticks: tuple[tuple[float, str], ...]
    guessing: float
    height: float
    bottom: float
    width: int = _WIDTH
    left: int = _LEFT
    right: int = _WIDTH - _RIGHT
    top: int = _TOP


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotCurve:
    """A judge's curve in a square."""

    color: str
    points: tuple[tuple[float, float], ...]
    """Each between 0 and 1."""
    radii: tuple[float, ...] = ()
    """Of the dots on its points, if there are any."""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlot:
    """Curves between 0 and 1."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[PlotCurve, ...]
    y_end: float = 1.0
    """The value at the upper end of the axis."""
    has_diagonal: bool = True
    """Whether the diagonal means guessing, or perfect probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPlots:
    """The plots of a page."""

    accuracies: AccuracyPlot
    squares: tuple[UnitPlot, ...]
    """ROC, reliability, and risk by coverage, if a judge gives probabilities."""


def draw_plots(results: Results) -> CalibrationPlots:
    """Lay out accuracies with their intervals, and the curves of judges that give probabilities."""
    scored = [numbered for numbered in enumerate(results.overall.candidates) if numbered[1].roc]
    return CalibrationPlots(accuracies=_accuracies(results), squares=_squares(scored) if scored else ())


def _accuracies(results: Results) -> AccuracyPlot:
    lowest = min((_lowest(group) for group in results.groups), default=_LOWEST)
    begin = min(_LOWEST, floor(lowest * 10) / 10)

    def x_of(accuracy: float) -> float:
        share = (accuracy - begin) / (1 - begin)
        return round(_LEFT + share * (_WIDTH - _RIGHT - _LEFT), 1)

    rows: list[AccuracyRow] = []
    y = float(_TOP)
    for group in results.groups:
        y += _ROW
        rows.append(AccuracyRow(y=y, label=group.name))
        for order, candidate in enumerate(group.candidates):
            y += _ROW
            found = candidate.two_way
            ends = (found.low, found.high) if found else (None, None)
            rows.append(
                AccuracyRow(
                    y=y,
                    label=_title(candidate),
                    color=_color(candidate, order),
                    value=found.value if found else None,
                    x=x_of(found.value) if found else 0.0,
                    interval=(x_of(ends[0]), x_of(ends[1]))
                    if ends[0] is not None and ends[1] is not None
                    else None,
                )
            )
        y += _ROW / 2
    return AccuracyPlot(
        rows=tuple(rows),
        ticks=tuple((x_of(tenth / 10), f"{tenth / 10:g}") for tenth in range(round(begin * 10), 11)),
        guessing=x_of(0.5),
        height=y + _BOTTOM,
        bottom=y,
    )


def _lowest(group: GroupResult) -> float:
    found = [candidate.two_way for candidate in group.candidates if candidate.two_way]
    return min((each.value if each.low is None else each.low for each in found), default=_LOWEST)


def _squares(scored: Sequence[tuple[int, CandidateResult]]) -> tuple[UnitPlot, ...]:
    return (
        UnitPlot(
            title="Each threshold for P(Yes)",
            x_label="unsupported claims that pass",
            y_label="supported claims that pass",
            curves=tuple(_roc(scored)),
        ),
        UnitPlot(
            title="Reliability",
            x_label="P(Yes) of the judge",
            y_label="share that people call supported",
            curves=tuple(_reliability(scored)),
        ),
        _risks(scored),
    )


def _risks(scored: Sequence[tuple[int, CandidateResult]]) -> UnitPlot:
    highest = max((risk for _, candidate in scored for _, risk in candidate.risk_coverage), default=0.0)
    y_end = next(end for end in (0.1, 0.2, 0.4, 1.0) if highest <= end)
    return UnitPlot(
        title="Risk by coverage",
        x_label="share of claims that are decided, the surest first",
        y_label="share of errors among them",
        curves=tuple(_risk_curves(scored, y_end)),
        y_end=y_end,
        has_diagonal=False,
    )


def _risk_curves(scored: Sequence[tuple[int, CandidateResult]], y_end: float) -> Iterator[PlotCurve]:
    for order, candidate in scored:
        area = candidate.risk_coverage_area
        yield PlotCurve(
            color=_color(candidate, order),
            points=tuple((coverage, risk / y_end) for coverage, risk in candidate.risk_coverage),
            label=f"AURC {area.value:.2f}" if area else "",
        )


def _roc(scored: Sequence[tuple[int, CandidateResult]]) -> Iterator[PlotCurve]:
    for order, candidate in scored:
        auc = candidate.claims.auc
        label = f"AUC {auc.value:.2f}" if auc else ""
        yield PlotCurve(color=_color(candidate, order), points=candidate.roc, label=label)


def _reliability(scored: Sequence[tuple[int, CandidateResult]]) -> Iterator[PlotCurve]:
    for order, candidate in scored:
        bins = candidate.reliability
        whole = sum(each.weight for each in bins)
        yield PlotCurve(
            color=_color(candidate, order),
            points=tuple((each.mean_score, each.share_supported) for each in bins),
            radii=tuple(round(sqrt(5 + 90 * each.weight / whole), 1) for each in bins),
        )


def _title(candidate: CandidateResult) -> str:
    return f"{candidate.name} (the floor)" if candidate.is_floor else candidate.name


def _color(candidate: CandidateResult, order: int) -> str:
    return "floor" if candidate.is_floor else f"judge{order % _COLORS}"
