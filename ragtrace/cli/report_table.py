"""The report on the terminal, in 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ragtrace.cli.render import many, one_line, open_console, print_indented, shortened, utc
from ragtrace.quality import GroupFigures, MetricFigures, QualityReport, ReportDimension
from ragtrace.quality.wording import (
    ABSENT,
    below,
    change,
    compared,
    disputes,
    effort,
    ledger,
    left_out,
    measured,
    rate,
    reviewed,
    score,
    sentence,
    shares,
    unjudged_claims,
)

if TYPE_CHECKING:
    from rich.console import Console

_WIDTHS: Final = (24, 6, 18, 14, 6, 6)
_HEAD: Final = ("", "judged", "mean [95 %]", "pass [95 %]", "median", "worst")


def print_report(report: QualityReport) -> None:
    """Print all groups, what differs, and what the numbers do not have."""
    console = open_console()
    since = "all" if report.since_ns is None else f"{utc(report.since_ns)} to"
    until = f" until {utc(report.until_ns)}" if report.since_ns is None else f" {utc(report.until_ns)}"
    print_indented(console, 0, f"{one_line(report.place)}, {since}{until}", style="bold")
    if report.whole.answers:
        console.print(_columns(*_HEAD), style="dim", soft_wrap=True)
        _group(console, report.whole, "all")
        for group in report.groups:
            _group(console, group, f"{_named(report.by)} {one_line(group.name)}")
        if more := left_out(report):
            print_indented(console, 0, more, style="dim")
        print_indented(console, 0, _legend(report), style="dim")
    _comparisons(console, report)
    if report.measured is not None:
        console.print()
        print_indented(console, 0, f"Calibration: {measured(report.measured)}.")
    if report.reviewed is not None:
        console.print()
        print_indented(console, 0, f"{reviewed(report.reviewed)}.")
    if report.disputes.of:
        console.print()
        print_indented(console, 0, f"{disputes(report.disputes)}.")
    if report.ledger is not None:
        console.print()
        print_indented(console, 0, f"{ledger(report.ledger)}.")
    if report.effort is not None:
        console.print()
        print_indented(console, 0, effort(report.effort))
    if report.notices:
        console.print()
        console.print("Note", style="bold")
    for notice in report.notices:
        print_indented(console, 2, sentence(notice))


def _named(by: ReportDimension | None) -> str:
    return "" if by is None else by.value.replace("_", " ")


def _group(console: Console, group: GroupFigures, title: str) -> None:
    said = (
        f"{many(group.answers, 'answer')}, {unjudged_claims(group)}"
        if group.claims
        else many(group.answers, "answer")
    )
    print_indented(console, 0, f"{shortened(title, 60)}: {said}", style="bold")
    for metric in group.metrics:
        console.print(_line(metric), soft_wrap=True)
        print_indented(console, 4, shares(metric), style="dim")
        for line in below(metric):
            print_indented(console, 4, line)


def _line(metric: MetricFigures) -> str:
    median, worst = (
        ABSENT if one is None else f"{one.value:.2f}" for one in (metric.median, metric.worst_tenth)
    )
    name = shortened(f"  {one_line(metric.metric)}", _WIDTHS[0] - 1)
    return _columns(name, f"{metric.judged:,}", score(metric.mean), rate(metric.passing), median, worst)


def _columns(*cells: str) -> str:
    first, *others = zip(cells, _WIDTHS, strict=True)
    return " ".join((first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others))).rstrip()


def _legend(report: QualityReport) -> str:
    lower = [metric.metric for metric in report.whole.metrics if metric.lower_is_better]
    worst = "worst: a tenth of the answers scores this or less"
    return f"{worst} ({', '.join(lower)}: or more)" if lower else worst


def _comparisons(console: Console, report: QualityReport) -> None:
    if report.comparisons:
        console.print()
        console.print("Differences, newer minus older", style="bold")
    for one in report.comparisons:
        print_indented(console, 2, one_line(compared(one)))
        if one.mean is None or one.passing is None:
            print_indented(console, 4, "no difference: one of them has no score")
            continue
        chance = one.passing.is_chance and one.mean.is_chance
        mean, passing = change(one.mean, is_share=False), change(one.passing, is_share=True)
        verdict = "chance alone may explain it" if chance else "more than chance"
        print_indented(console, 4, f"mean {mean}, pass rate {passing}: {verdict}")
