"""The command `ragtrace compare`: its options and its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.options import FILE, RangeOptions, metrics_shown_option
from ragtrace.cli.settings import command, group, option, takes

if TYPE_CHECKING:
    from ragtrace.quality.gate import Gate

OUT_SUFFIXES: Final = (".html", ".json", ".md")
BY: Final = ("prompt_version", "model", "service", "release")
"""`ragtrace.quality.comparing.DIMENSIONS`."""


def _gates(rules: tuple[str, ...]) -> tuple[Gate, ...]:
    from ragtrace.quality.gate import Gate

    return tuple(map(Gate.of, rules))


def _out(path: Path) -> Path:
    if path.suffix.lower() not in OUT_SUFFIXES:
        raise ValueError(f"{path.name!r} must end with {', '.join(OUT_SUFFIXES)}")
    return path


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
        parse=_out,
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

    A and B are a report.jsonl (`--out` of evaluate and backfill), lines of `evaluate --json`, transcripts
    (FILE#JUDGE), store:PATH or another SOURCE of --from; with --by, the names of two groups of --from.

    Answers are paired by record id, else by question; without pairs, they are two samples.

    RULE is [METRIC] [mean] [possibly] worse [by more than X]. It is about the pass rate of every metric
    unless it names one, or the mean score. It fails if the 95 % interval shows that B is worse by more than
    X; with *possibly*, unless the interval rules that out. An interval too wide to tell is told.

    Exit code 0 if no rule fails, 1 if one does, 2 if there is nothing to compare.

    \b
    Examples:
      ragtrace compare main.jsonl branch.jsonl --fail-if 'worse by more than 0.02'
      ragtrace compare v1 v2 --by prompt_version --from store:ragtrace.db
      ragtrace compare judged.db#gpt-4o-mini judged.db#gpt-4.1 --out comment.md
    """
    from ragtrace.cli.compare_run import run_compare

    click.get_current_context().exit(run_compare((a, b), compared, output))
