"""The command `ragtrace calibrate`: its options and its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from ragtrace.cli.options import (
    JsonOption,
    JudgeOptions,
    command,
    concurrency_option,
    group,
    option,
    takes,
)

_FORMS: Final = ("json", "logprobs")


def _forms(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or not {*names} <= {*_FORMS}:
        raise ValueError(f"choose from {', '.join(_FORMS)}, separated by commas")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions:
    """Which labeled answers are measured."""

    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="At most N answers of each file."
    )
    group_by: str | None = option(
        "--group-by",
        metavar="FIELD",
        help="Rows with the same value in FIELD are about one document: intervals resample documents."
        " --group-by id makes each row its own. [default: rows with the same contexts]",
    )
    seed: int = option(
        "--seed", type=int, default=0, show_default=True, metavar="N", help="Of samples and orders."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """Who is measured, and how."""

    judge: JudgeOptions = group(JudgeOptions)
    forms: tuple[str, ...] = option(
        "--forms",
        default="json",
        show_default=True,
        metavar="FORMS",
        parse=_forms,
        help="How verdicts are requested: json (batches), logprobs (P(Yes) of one claim), or json,logprobs to"
        " measure both.",
    )
    runs: int = option(
        "--runs",
        type=click.IntRange(1, 20),
        default=1,
        show_default=True,
        metavar="N",
        help="Judge N times, with chunks and claims in another order each time, to count how many verdicts"
        " change.",
    )
    end_to_end: bool = option(
        "--end-to-end", is_flag=True, help="Also judge whole answers, with claims extracted by the judge."
    )
    concurrency: int = concurrency_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOutput:
    """What is written."""

    save: str | None = option(
        "--save",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write the recommended settings.",
    )
    card: str | None = option(
        "--card",
        type=click.Path(dir_okay=False),
        metavar="FILE.json",
        help="Write the judge's card: what was measured, on what, and when.",
    )
    report: str | None = option(
        "--out", type=click.Path(dir_okay=False), metavar="FILE.html", help="Write a page."
    )
    with_examples: bool = option(
        "--with-examples", is_flag=True, help="List claims in the page on which people and judge disagree."
    )
    json: JsonOption = group(JsonOption)

    def __post_init__(self) -> None:
        """Refuse examples without a page."""
        if self.with_examples and not self.report:
            raise click.UsageError("--with-examples needs --out: which page?")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are written."""
        return tuple(Path(file) for file in (self.save, self.card, self.report) if file)


@command()
@click.argument("paths", metavar="DATA...", nargs=-1, required=True)
@takes(
    sample=("What to read", SampleOptions),
    measure=("How to judge", MeasureOptions),
    output=("What to write", CalibrateOutput),
)
def calibrate(
    paths: tuple[str, ...], sample: SampleOptions, measure: MeasureOptions, output: CalibrateOutput
) -> None:
    """Measure a judge against human labels; - is standard input.

    A row of DATA is {"contexts": [...], "claims": [{"text", "label"}]}, optionally with "id", "question",
    "answer" and "answer_label". Labels are supported, contradicted, unsupported or null (left out). The judge
    sees contexts and claims, not the labels. Lines about the answer itself ("Here's a summary in 92 words:")
    are left out. Instead of claims a row may have the answer and "criteria": [{"text", "label"}] with the
    labels true, false or null.

    Rows, labels and output files are checked before the first request. A row that cannot be read is skipped,
    with a line on stderr; the exit code is then 2.

    Ctrl-C ends the run early and reports what was measured so far.

    \b
    Examples:
      ragtrace calibrate labeled.jsonl --judge openai:gpt-4o-mini \\
          --out report.html --save judge.json
      ragtrace calibrate labeled.jsonl --limit 50 --forms json,logprobs \\
          --judge openai:qwen2.5 --base-url http://localhost:11434/v1
      ragtrace calibrate labeled.jsonl --judge lexical
    """
    from ragtrace.cli.calibrate_run import run_calibration

    click.get_current_context().exit(run_calibration(paths, sample, measure, output))
