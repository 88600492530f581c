"""``ragtrace demo``: its options and its help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ragtrace.cli.options import JsonOption, command, group, option, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What is replayed, and where it also goes."""

    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), help="Replay only the first N of the 24 answers."
    )
    json: JsonOption = group(JsonOption)
    opens: bool | None = option(
        "--open/--no-open", help="Open the page in a browser. [default: if this is a desktop]"
    )
    stays: bool | None = option(
        "--stay/--exit", help="Serve the page until Ctrl-C. [default: if this is a terminal]"
    )
    endpoint: str | None = option("--to", metavar="ENDPOINT", help="The OTLP endpoint of a Jaeger or Tempo.")


@command()
@takes(options=DemoOptions)
def demo(options: DemoOptions) -> None:
    """See a wrong claim beside the chunk that contradicts it.

    Instrumented code sends 24 answers of RAGTruth over OTLP to a collector in its own process, which writes
    verdicts, claim by claim, into the same traces. The verdicts are replayed from
    human annotators, and the carriers say so. Then the same answers are judged without a key, by comparing
    words, and the output shows where the two differ. If OPENAI_API_KEY or OPENAI_BASE_URL is set,
    that endpoint judges too (model: RAGTRACE_JUDGE_MODEL).

    Traces and verdicts also go to --to, or to a back end that listens on localhost:4317. --json prints the
    lines of `evaluate --json` for each answer and judge, then a summary.

    \b
    Examples:
      ragtrace demo
      ragtrace demo --limit 5 --json
      ragtrace demo --to http://localhost:4317
    """
    from ragtrace.cli.demo_run import run_demo

    run_demo(options)
