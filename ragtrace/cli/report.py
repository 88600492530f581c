"""The commands `ragtrace report` and `ragtrace compare`: their options and their help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.options import (
    EXISTING_FILE,
    FILE,
    RangeOptions,
    command,
    group,
    metrics_shown_option,
    named,
    option,
    takes,
)

if TYPE_CHECKING:
    from ragtrace.quality.comparing import Gate


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
"""What `ragtrace.quality.report.group_of` takes."""


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
    judge: str | None = option("--judge", metavar="JUDGE", help="Verdicts of this judge only.")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOutputOptions:
    """Where the report goes."""

    out: Path | None = option(
        "--out",
        type=FILE,
        metavar="FILE",
        parse=named(".html", ".json"),
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
      ragtrace report --config collector.yaml --since 7d --by service
      ragtrace report --by prompt_version --out report.html
      ragtrace report --from tempo:http://localhost:3200 --since 24h --by hour
      ragtrace report --judge openai:gpt-4o-mini --calibration judge.json --json
    """
    from ragtrace.cli.report_run import run_report

    run_report(place, figures, output)


BY: Final = ("prompt_version", "model", "service", "release", "day", "week")
"""What tells versions of a system apart, or when they answered."""


def _gates(rules: tuple[str, ...]) -> tuple[Gate, ...]:
    from ragtrace.quality.comparing import Gate

    return tuple(map(Gate.of, rules))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOptions:
    """What is compared."""

    by: str | None = option(
        "--by",
        type=click.Choice(BY),
        help="A and B are two groups of --from; of two files, compare within each group, too.",
    )
    metrics: tuple[str, ...] = metrics_shown_option()
    place: RangeOptions = group(RangeOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOutput:
    """What fails the command, and what is written."""

    gates: tuple[Gate, ...] = option(
        "--fail-if",
        multiple=True,
        metavar="RULE",
        parse=_gates,
        help="Exit with 1 if B is 'worse by more than 0.02', a share of the pass rate. Repeatable.",
    )
    out: Path | None = option(
        "--out",
        type=FILE,
        metavar="FILE",
        parse=named(".html", ".json", ".md"),
        help="Also write a page (.html), JSON (.json) or a comment for a pull request (.md), with questions"
        " and claims.",
    )
    as_json: bool = option("--json", is_flag=True, help="Print JSON to stdout.")


@command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@takes(compared=("What to compare", ComparedOptions), output=("What to write", CompareOutput))
def compare(a: str, b: str, compared: ComparedOptions, output: CompareOutput) -> None:
    """Say whether B answers better than A, with intervals and the answers that changed.

    A and B are a report.jsonl (`--out` of evaluate and backfill), transcripts (FILE#JUDGE),
    store:PATH or another SOURCE of --from; with --by, the names of two groups of --from.

    Answers are paired by record id, else by question; without pairs, they are two samples.

    RULE is [METRIC] [mean] [possibly] worse [by more than X]. It is about the pass rate of every metric
    unless it names one, or the mean score. It fails if the 95 % interval shows that B is worse by more than
    X; with *possibly*, unless the interval rules that out. An interval too wide to tell is told.

    Exit code 0 if no rule fails, 1 if one does, 2 if there is nothing to compare.

    \b
    Examples:
      ragtrace compare main.jsonl branch.jsonl --fail-if 'worse by more than 0.02'
      ragtrace compare v1 v2 --by prompt_version --from store:ragtrace.db
      ragtrace compare 2026-W46 2026-W47 --by week --from store: --since 14d
      ragtrace compare judged.db#gpt-4o-mini judged.db#gpt-4.1 --out comment.md
    """
    from ragtrace.cli.report_run import run_compare

    click.get_current_context().exit(run_compare((a, b), compared, output))
