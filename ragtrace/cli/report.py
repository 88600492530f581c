"""``ragtrace report``: its options."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from ragtrace.cli.options import EXISTING_FILE, FILE, RangeOptions, duration, metrics_shown_option
from ragtrace.cli.settings import command, option, takes

DIMENSIONS: Final = (
    "service",
    "model",
    "prompt_version",
    "tenant",
    "judge",
    "cause",
    "source",
    "day",
    "hour",
)
"""The values of `ragtrace.quality.ReportDimension`."""
OUT_SUFFIXES: Final = (".html", ".json")


def _out(path: Path) -> Path:
    if path.suffix.lower() not in OUT_SUFFIXES:
        raise ValueError(f"{path.name!r} must end with {' or '.join(OUT_SUFFIXES)}")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureOptions:
    """Which numbers."""

    metrics: tuple[str, ...] = metrics_shown_option()
    by: str | None = option(
        "--by",
        type=click.Choice(DIMENSIONS),
        help="Also by group. `cause` is the hop that failed, `source` the document of a chunk: 500"
        " answers, drawn at random, are opened for it.",
    )
    baseline: timedelta | None = option(
        "--baseline",
        metavar="DURATION",
        parse=duration,
        help="Compare with this much time before --since, such as 7d.",
    )
    judge: str | None = option("--judge", metavar="JUDGE", help="Verdicts of this judge only.")
    cheap: str | None = option(
        "--cheap",
        metavar="JUDGE",
        help="A cheap judge on more answers, such as lexical: joined with --judge, for shorter intervals.",
    )
    calibration: Path | None = option(
        "--calibration",
        type=EXISTING_FILE,
        metavar="FILE",
        help="What `ragtrace calibrate --save` wrote: correct the pass rate for the judge's errors.",
    )
    reviews: Path | None = option(
        "--reviews",
        type=EXISTING_FILE,
        metavar="PATH",
        help="The file of reviews of `ragtrace ui`: those in random order correct faithfulness.",
    )

    def __post_init__(self) -> None:
        """Refuse what makes no report."""
        if self.cheap and not self.judge:
            raise click.UsageError("--cheap needs --judge: which judge is it joined with?")
        if self.cheap and self.cheap == self.judge:
            raise click.UsageError("--cheap and --judge are the same judge: name two")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOutputOptions:
    """Where the report goes."""

    out: Path | None = option(
        "--out",
        type=FILE,
        metavar="FILE",
        parse=_out,
        help="Also write a page (.html) or JSON (.json). It has no text of answers.",
    )
    as_json: bool = option("--json", is_flag=True, help="Print JSON to stdout (docs/report.schema.json).")


@command()
@takes(
    place=("What to read", RangeOptions),
    figures=("Which numbers", FigureOptions),
    output=("Output", ReportOutputOptions),
)
def report(place: RangeOptions, figures: FigureOptions, output: ReportOutputOptions) -> None:
    """Measure production quality from judged answers, with confidence intervals and what is missing.

    Answers are weighted by one over their sampling probability. For the judge's own errors, see
    `ragtrace calibrate --report`; for the difference of two versions, `ragtrace compare`.

    \b
    Examples:
      ragtrace report
      ragtrace report --config collector.yaml --by service --baseline 7d
      ragtrace report --by prompt_version --out report.html
      ragtrace report --from tempo:http://localhost:3200 --since 24h --by hour
      ragtrace report --judge openai:gpt-4o-mini --cheap lexical --json
    """
    from ragtrace.cli.report_run import run_report

    run_report(place, figures, output)
