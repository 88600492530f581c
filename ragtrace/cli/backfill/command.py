"""The command `ragtrace backfill`: its options and its help."""

from __future__ import annotations

import click

from ragtrace.cli.backfill.options import CostOptions, JudgingOptions, OutputOptions, ReadOptions
from ragtrace.cli.settings import command, section, takes


@command()
@takes(
    read=section("What to read", ReadOptions),
    judging=section("How to judge", JudgingOptions),
    cost=section("What it may cost", CostOptions),
    output=section("What to write", OutputOptions),
)
def backfill(read: ReadOptions, judging: JudgingOptions, cost: CostOptions, output: OutputOptions) -> None:
    """Judge the answers in stored traces, and send the verdicts into these traces.

    Each verdict is a span in the answer's trace, with the id the collector would give it. Answers that the
    same evaluator has judged are skipped: their verdict is in the source, in a destination file, or an
    earlier run sent it. If the judge fails on an answer, there is no span: run the command again to retry.
    Ctrl-C finishes the answers in progress; --resume continues.

    Exit code 0 if nothing failed, else 1; 3 if the budget is spent; 130 if it was stopped.

    \b
    Examples:
      ragtrace backfill --from otlp-file:traces.jsonl --dry-run
      ragtrace backfill --from otlp-file:traces.jsonl \\
          --to http://localhost:4317 --judge openai:gpt-4o-mini
      ragtrace backfill --from jaeger:http://localhost:16686 \\
          --service shop --since 2d --to http://localhost:4317
      ragtrace backfill --from tempo:http://localhost:3200 \\
          --traceql '{ .gen_ai.operation.name = "chat" }' \\
          --since 7d --rate 0.1 --to http://localhost:4317
    """
    from ragtrace.cli.backfill.session import run_backfill

    click.get_current_context().exit(run_backfill(read, judging, cost, output))
