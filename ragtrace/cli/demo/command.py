"""The command `ragtrace demo`: its options and its help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ragtrace.cli.options import JsonOption
from ragtrace.cli.settings import command, group, option, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What is replayed, how fast, and where it also goes."""

    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), help="Replay only the first N of the 24 answers."
    )
    json: JsonOption = group(JsonOption)
    endpoint: str | None = option("--to", metavar="ENDPOINT", help="The OTLP endpoint of a Jaeger or Tempo.")
    ui: str | None = option(
        "--ui", metavar="URL", help="Jaeger's page, for the link. [default: port 16686 on the host of --to]"
    )
    rate: float = option(
        "--rate",
        type=click.FloatRange(min=0.1, max=100),
        default=4.0,
        show_default=True,
        help="Answers a second.",
    )
    patience_s: float = option(
        "--patience",
        type=click.FloatRange(min=1),
        default=120.0,
        show_default=True,
        help="Give up after so many seconds without a new verdict.",
    )


@command()
@takes(options=DemoOptions)
def demo(options: DemoOptions) -> None:
    """See the whole pipeline on human-labeled RAG traffic.

    Instrumented code sends 24 answers of RAGTruth over OTLP to a collector in its own process. The collector
    judges them claim by claim and writes the verdicts into the same traces; the output compares each with
    what human annotators said. Without a key the judge is a lexical heuristic. If OPENAI_API_KEY or
    OPENAI_BASE_URL is set, that endpoint judges (model: RAGTRACE_JUDGE_MODEL).

    Traces and verdicts also go to --to, or to a back end that listens on localhost:4317.

    \b
    Examples:
      ragtrace demo
      ragtrace demo --limit 5 --json
      ragtrace demo --to http://localhost:4317
    """
    from ragtrace.cli.demo.run import run_demo

    run_demo(options)
