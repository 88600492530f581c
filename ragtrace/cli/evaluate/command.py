"""The command `ragtrace evaluate`: its options and its help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ragtrace.cli.evaluate.options import ProfileOptions
from ragtrace.cli.evaluator_options import EvaluatorOptions
from ragtrace.cli.options import ConcurrencyOption, JsonOption
from ragtrace.cli.report_options import ReportOptions, TranscriptOption
from ragtrace.cli.settings import command, group, option, section, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateJudging:
    """Who judges, and how many answers at once."""

    evaluator: EvaluatorOptions = group(EvaluatorOptions)
    concurrency: ConcurrencyOption = group(ConcurrencyOption)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOutput:
    """What is written, and what fails the command."""

    fail_under: float | None = option(
        "--fail-under",
        type=click.FloatRange(0, 1),
        metavar="SCORE",
        help="Exit with 1 if the mean score of a metric is below SCORE (above 1 - SCORE if lower is better),"
        " or if nothing was scored.",
    )
    reports: ReportOptions = group(ReportOptions)
    transcripts: TranscriptOption = group(TranscriptOption)
    json: JsonOption = group(JsonOption)


@command()
@click.argument("path", metavar="RECORDS")
@takes(
    measure=section("What to measure", ProfileOptions),
    judging=section("How to judge", EvaluateJudging),
    output=section("What to write", EvaluateOutput),
)
def evaluate(path: str, measure: ProfileOptions, judging: EvaluateJudging, output: EvaluateOutput) -> None:
    """Judge the records of a file: JSON, .csv, .tsv or .parquet; - is standard input.

    A record is {"id", "question", "contexts": [text or {"id", "text"}], "answer"}; contexts may be one text.
    The field names of RAGAS, DeepEval and promptfoo also work, JSON may be lines, an array or columns, and
    cells may hold lists as Python writes them. A file of traces is read like by `ragtrace explain`. Files may
    be compressed by gzip or zstd. --json prints one line per record and metric, in the order of the file.

    With --profile, scores follow another tool's rules, and the lines add compat_status (ok, nan, error,
    grader_error) and compat_score (the tool's raw number).

    A row that is not a record is skipped, with a line on stderr that says which row and why.

    Exit code 0 if every record was judged or had nothing to judge, 1 if the judge failed on one, 2 if the
    file or one of its rows cannot be read.

    \b
    Examples:
      ragtrace evaluate records.jsonl
      ragtrace evaluate records.jsonl --judge openai:gpt-4o-mini --json
      ragtrace evaluate records.jsonl --judge openai:qwen2.5 \\
          --base-url http://localhost:11434/v1
      ragtrace evaluate records.jsonl --judge openai:gpt-4o-mini \\
          --profile deepeval-4 --peer-prompts
      jq -c .record log.jsonl | ragtrace evaluate - --fail-under 0.8
    """
    from ragtrace.cli.evaluate.run import evaluate_file

    code = evaluate_file(path, measure, judging, output)
    click.get_current_context().exit(code)
