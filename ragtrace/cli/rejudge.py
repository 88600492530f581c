"""The command `ragtrace rejudge`: its options and its help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ragtrace.cli.evaluator_options import JudgeOptions
from ragtrace.cli.options import (
    ConcurrencyOption,
    JsonOption,
    PassOptions,
    ProfileOption,
    ToHeaders,
    changes_of,
)
from ragtrace.cli.settings import command, group, option, takes


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
    profile: ProfileOption = group(ProfileOption)
    judge: JudgeOptions = group(JudgeOptions)
    concurrency: ConcurrencyOption = group(ConcurrencyOption)
    metric_options: tuple[tuple[str, object], ...] = option(
        "--metric-option",
        multiple=True,
        metavar="NAME=VALUE",
        parse=changes_of,
        help="An option of the metrics (docs/metrics.md): require_evidence=false. Repeatable.",
    )
    is_agreed: bool = option("--yes", "-y", is_flag=True, help="Spend on --judge without asking.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgeOutput:
    """What is shown and sent."""

    destination: str | None = option(
        "--to", metavar="ENDPOINT", help="Send the new verdicts into the traces."
    )
    headers: ToHeaders = group(ToHeaders)
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
    from ragtrace.cli.rejudge_run import run_rejudge

    click.get_current_context().exit(run_rejudge(kept, rescore, output))
