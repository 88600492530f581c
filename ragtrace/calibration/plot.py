"""The plot of a measurement, as SVG for a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from ragtrace.calibration.results import CandidateResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_Ordered: TypeAlias = Sequence[tuple[int, CandidateResult]]
"""Candidates with their positions in the group, which determine their colors."""

_COLORS: Final = ("#1d4ed8", "#b45309", "#7c3aed", "#0f766e")
_FLOOR: Final = "#6b7280"
_METADATA: Final = ("Creator", "Date", "Format", "Type")
"""Removes matplotlib's own metadata from the SVG."""
_STYLE: Final = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "ragtrace",  # make the SVG reproducible
    "text.parse_math": False,  # names of files or models may contain a dollar sign
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_plot(results: Results) -> str:
    """Draw balanced accuracies with their intervals; ROC and reliability if a judge gives probabilities.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    scored = [numbered for numbered in enumerate(results.overall.candidates) if numbered[1].roc]
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # its stubs list every key there is
        height = 1.2 + 0.28 * sum(len(group.candidates) + 1 for group in results.groups)
        figure = Figure(figsize=(8.2, height + (3.4 if scored else 0)), layout="constrained")
        FigureCanvasSVG(figure)
        if scored:
            grid = figure.add_gridspec(2, 2, height_ratios=(height, 3.4))
            _draw_accuracies(figure.add_subplot(grid[0, :]), results)
            _draw_roc(figure.add_subplot(grid[1, 0]), scored)
            _draw_reliability(figure.add_subplot(grid[1, 1]), scored)
        else:
            _draw_accuracies(figure.add_subplot(), results)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(_METADATA))
    svg = written.getvalue()
    return svg[svg.index("<svg") :]


def _draw_accuracies(axes: Axes, results: Results) -> None:
    ticks: list[tuple[float, str]] = []
    at = 0.0
    for group in results.groups:
        ticks.append((at, group.name))
        for order, candidate in enumerate(group.candidates):
            at += 1
            _draw_bar(axes, at, candidate, _color(candidate, order), labeled=group is results.groups[0])
        at += 1
    axes.axvline(0.5, color="#9ca3af", linewidth=1, linestyle=":")
    axes.text(0.5, -0.6, " guessing", color="#6b7280", va="top")
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks], va="center")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(at, -0.7)
    axes.set_xlim(0.3, 1.0)
    axes.set_xlabel("balanced accuracy on claims, two-way, with its 95 % interval")
    axes.legend(
        loc="upper left", bbox_to_anchor=(0, -0.32 if len(results.groups) < 2 else -0.16), frameon=False
    )


def _draw_bar(axes: Axes, at: float, candidate: CandidateResult, color: str, *, labeled: bool) -> None:
    label = _title(candidate) if labeled else None
    found = candidate.two_way
    if found is None:
        axes.plot([], [], "o", color=color, label=label)
        return
    if found.low is not None and found.high is not None:
        axes.plot(
            [found.low, found.high], [at, at], color=color, linewidth=5, alpha=0.35, solid_capstyle="butt"
        )
    axes.plot([found.value], [at], "o", color=color, markersize=5, label=label)
    right = found.high if found.high is not None else found.value
    axes.text(right + 0.008, at, f"{found.value:.2f}", va="center", color=color)


def _draw_roc(axes: Axes, scored: _Ordered) -> None:
    axes.plot([0, 1], [0, 1], color="#9ca3af", linewidth=1, linestyle=":")
    for order, candidate in scored:
        auc = candidate.claims.auc
        label = f"AUC {auc.value:.2f}" if auc else None
        axes.plot(*zip(*candidate.roc, strict=True), color=_color(candidate, order), label=label)
    axes.set_xlabel("unsupported claims that pass")
    axes.set_ylabel("supported claims that pass")
    axes.set_title("each threshold for P(Yes)", loc="left")
    axes.legend(loc="lower right", frameon=False)
    axes.set_aspect("equal")


def _draw_reliability(axes: Axes, scored: _Ordered) -> None:
    axes.plot([0, 1], [0, 1], color="#9ca3af", linewidth=1, linestyle=":")
    for order, candidate in scored:
        whole = sum(bin_.weight for bin_ in candidate.reliability)
        means = [bin_.mean_score for bin_ in candidate.reliability]
        shares = [bin_.share_supported for bin_ in candidate.reliability]
        sizes = [14 + 300 * bin_.weight / whole for bin_ in candidate.reliability]
        color = _color(candidate, order)
        axes.plot(means, shares, color=color, linewidth=1)
        axes.scatter(means, shares, s=sizes, color=color, alpha=0.6)
    axes.set_xlabel("P(Yes) of the judge")
    axes.set_ylabel("share that people call supported")
    axes.set_title("reliability", loc="left")
    axes.set_aspect("equal")


def _title(candidate: CandidateResult) -> str:
    return f"{candidate.name} (the floor)" if candidate.is_floor else candidate.name


def _color(candidate: CandidateResult, order: int) -> str:
    return _FLOOR if candidate.is_floor else _COLORS[order % len(_COLORS)]
