"""The commands `ragtrace evaluate` and `ragtrace rejudge`: their options and their help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ragtrace.cli.options import (
    OWN_PROFILE,
    JsonOption,
    JudgeOptions,
    PassOptions,
    ReportOptions,
    command,
    concurrency_option,
    criteria_metrics,
    criteria_option,
    group,
    option,
    profile_option,
    takes,
    to_headers_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """What is measured, and by whose rules."""

    passes: PassOptions = group(PassOptions)
    criteria: tuple[str, ...] = criteria_option()
    profile: str | None = profile_option()
    uses_tool_prompts: bool = option(
        "--peer-prompts",
        is_flag=True,
        configures=True,
        help="Ask as the tool of --profile asks: its calls in its order, its JSON fields and text formats.",
    )

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics as a configuration has them."""
        chosen = self.passes.metrics(self.profile or OWN_PROFILE, asks=self.uses_tool_prompts)
        return [*chosen, *criteria_metrics(self.criteria)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateJudging:
    """Who judges, and how many answers at once."""

    judge: JudgeOptions = group(JudgeOptions)
    concurrency: int = concurrency_option()


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
    json: JsonOption = group(JsonOption)


@command()
@click.argument("path", metavar="RECORDS")
@takes(
    measure=("What to measure", MeasureOptions),
    judging=("How to judge", EvaluateJudging),
    output=("What to write", EvaluateOutput),
)
def evaluate(path: str, measure: MeasureOptions, judging: EvaluateJudging, output: EvaluateOutput) -> None:
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
          --base-url http://localhost:11434/v1 --set judge.timeout=5m
      ragtrace evaluate records.jsonl --judge openai:gpt-4o-mini \\
          --profile deepeval-4 --peer-prompts \\
          --set evaluate.metrics.faithfulness.options.strict_mode=true
      jq -c .record log.jsonl | ragtrace evaluate - --fail-under 0.8
    """
    from ragtrace.cli.evaluate_run import evaluate_file

    code = evaluate_file(path, measure, judging, output)
    click.get_current_context().exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOptions:
    """Which kept answers are read."""

    source: str = option(
        "--transcripts",
        required=True,
        metavar="FILE[#NAME]",
        help="What --transcripts of other commands wrote; #NAME picks an evaluator if there are several.",
    )
    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N answers."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoreOptions:
    """How they are scored again, or by whom judged."""

    passes: PassOptions = group(PassOptions)
    profile: str | None = profile_option()
    judge: JudgeOptions = group(JudgeOptions)
    concurrency: int = concurrency_option()
    is_agreed: bool = option("--yes", "-y", is_flag=True, help="Spend on --judge without asking.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgeOutput:
    """What is shown and sent."""

    destination: str | None = option(
        "--to", metavar="ENDPOINT", help="Send the new verdicts into the traces."
    )
    headers: Mapping[str, str] = to_headers_option()
    json: JsonOption = group(JsonOption)


@command()
@takes(
    kept=("What to read", KeptOptions),
    rescore=("How to judge", RescoreOptions),
    output=("What to write", RejudgeOutput),
)
def rejudge(kept: KeptOptions, rescore: RescoreOptions, output: RejudgeOutput) -> None:
    """Score kept verdicts again without a call, or ask another judge about the same answers.

    Without --judge: score the records again from the judge's saved replies, with another pass rule, another
    tool's rules, or newer evidence checks. Without --metrics and --config, the metrics are those that ran. No
    judge is asked; answers that would need a new request are counted. --to sends the new verdicts, which name
    the ones they replace.

    With --judge: ask that judge about the same records. Its replies are saved in the same file, and
    compared. `ragtrace compare` compares evaluators that a file has already.

    Exit code 0 if every answer was scored, else 1.

    \b
    Examples:
      ragtrace rejudge --transcripts judged.db --threshold 0.8
      ragtrace rejudge --transcripts judged.db --profile deepeval-4 \\
          --to http://localhost:4317
      ragtrace rejudge --transcripts judged.db --judge openai:gpt-4.1
    """
    from ragtrace.cli.evaluate_run import run_rejudge

    click.get_current_context().exit(run_rejudge(kept, rescore, output))
