"""The command `ragtrace backfill`: what it reads, how it judges, what that may cost, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ragtrace.cli.options import (
    EXISTING_FILE,
    FILE,
    ChosenEvaluator,
    JsonOption,
    JudgeOptions,
    Moment,
    PassOptions,
    ReportOptions,
    command,
    criteria_metrics,
    criteria_option,
    duration,
    from_headers_option,
    group,
    option,
    pairs,
    takes,
    to_headers_option,
)

if TYPE_CHECKING:
    from ragtrace.ports import TraceQuery
    from ragtrace.sampling import SamplingPlan
    from ragtrace_collector.cli.shared_budget import CollectorBudget


_DEFAULT_SINCE: Final = "1h"
_FILES: Final = "otlp-file:"
_LEAST_PILOT: Final = 5
_ANSWERS: Final = 8
_MOST_ANSWERS: Final = 256
_BATCH_ANSWERS: Final = 1_000
_MOST_BATCH_ANSWERS: Final = 50_000


def _tags(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(pairs(texts, "KEY=VALUE, such as deployment.environment.name=prod"))


def _sampling_plan(path: str) -> SamplingPlan:
    from ragtrace_collector.config import load_sampling

    return load_sampling(Path(path))


def is_file(address: str) -> bool:
    """Say whether an address names files, not a server."""
    return address.startswith(_FILES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Which stored traces are searched for, as it was typed."""

    service: str | None = option(
        "--service", metavar="NAME", selects=True, help="Traces with a span of this service."
    )
    operation: str | None = option(
        "--operation", metavar="NAME", selects=True, help="Traces with a span of this name."
    )
    since: Moment | None = option(
        "--since",
        parse=Moment,
        metavar="TIME",
        selects=True,
        help=f"Start of the search: how long ago (2h, 7d), or a date. [default: {_DEFAULT_SINCE}]",
    )
    until: Moment | None = option(
        "--until", parse=Moment, metavar="TIME", selects=True, help="End of the search. [default: now]"
    )
    tags: tuple[tuple[str, str], ...] = option(
        "--tag",
        multiple=True,
        metavar="KEY=VALUE",
        parse=_tags,
        selects=True,
        help="Traces with a span that has this attribute. Repeatable.",
    )
    traceql: str | None = option(
        "--traceql", metavar="QUERY", selects=True, help="A query in Tempo's own language, instead."
    )
    min_age: timedelta = option(
        "--min-age",
        parse=duration,
        default="5m",
        show_default=True,
        metavar="TIME",
        help="Skip younger traces: spans may be missing.",
    )

    def __post_init__(self) -> None:
        """Refuse two ways to search at once."""
        if self.traceql and (self.service or self.operation or self.tags):
            raise click.UsageError(
                "--traceql replaces --service, --operation and --tag: give one or the other"
            )

    @property
    def is_made(self) -> bool:
        """Whether anything was chosen."""
        return bool(self.service or self.operation or self.since or self.until or self.tags or self.traceql)

    def query(self, now_ns: int) -> TraceQuery:
        """Return the query, whose relative times count back from now.

        Raises:
            UsageError: its end is not after its beginning.
        """
        from ragtrace.ports import TraceQuery

        latest_ns = now_ns - int(self.min_age.total_seconds() * 1e9)
        since_ns = (self.since or Moment(_DEFAULT_SINCE)).at(now_ns)
        until_ns = min(self.until.at(now_ns), latest_ns) if self.until else latest_ns
        if until_ns <= since_ns:
            raise click.UsageError(
                f"the search is empty: --since {self.since or _DEFAULT_SINCE} is not before "
                f"{f'--until {self.until}' if self.until else 'now'} less --min-age"
            )
        return TraceQuery(
            since_ns=since_ns,
            until_ns=until_ns,
            service=self.service,
            operation=self.operation,
            tags=dict(self.tags),
            traceql=self.traceql,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Which answers are read, and where."""

    source: str = option(
        "--from",
        required=True,
        metavar="SOURCE",
        help="jaeger:http://HOST:16686, tempo:http://HOST:3200, phoenix:http://HOST:6006,"
        " langfuse:https://HOST, or otlp-file:PATH: a file, a folder, or - for standard input.",
    )
    headers: Mapping[str, str] = from_headers_option()
    search: SearchOptions = group(SearchOptions)
    trace_ids: tuple[str, ...] = option(
        "--trace-id", multiple=True, metavar="ID", selects=True, help="Only this trace. Repeatable."
    )
    ratio: float | None = option(
        "--rate",
        type=click.FloatRange(0, 1),
        metavar="R",
        selects=True,
        help="The share of traces, chosen by trace id as in the collector. [default: 1.0]",
    )
    sampling: SamplingPlan | None = option(
        "--sampling",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        parse=_sampling_plan,
        selects=True,
        help="A collector's configuration, or its section `sample`: ratio and rules (docs/sampling.md)."
        " --rate overrides the ratio in it.",
    )
    limit: int | None = option(
        "--limit",
        type=click.IntRange(min=1),
        metavar="N",
        selects=True,
        help="Judge at most N answers.",
    )
    only_unscored: bool = option(
        "--only-unscored",
        is_flag=True,
        selects=True,
        help="Skip answers that any evaluator of ragtrace has judged.",
    )
    resume: bool = option(
        "--resume",
        is_flag=True,
        selects=True,
        help="Continue the last run of the same search where it stopped.",
    )
    progress_path: Path | None = option(
        "--progress",
        type=FILE,
        metavar="FILE",
        help="Where to save what was judged and sent. [default: in the state folder, by source and"
        " destination]",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """How many answers are judged at once, and whether in batches."""

    wanted: bool = option(
        "--batch",
        is_flag=True,
        help="Use OpenAI's Batch API at half the price: a step of a metric takes up to a day. For"
        " openai:MODEL only. No request is paid for twice, even if the run is stopped, killed or repeated.",
    )
    poll_s: float = option(
        "--batch-poll",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How often to check a batch.",
    )
    answers: int | None = option(
        "--concurrency",
        type=click.IntRange(min=1, max=_MOST_BATCH_ANSWERS),
        metavar="N",
        help=f"Judge N answers at once: at most {_MOST_ANSWERS}, or with --batch as many as fit into a batch."
        f" [default: {_ANSWERS}, or {_BATCH_ANSWERS:,} with --batch]",
    )

    def __post_init__(self) -> None:
        """Refuse more answers at once than judges outside of batches take."""
        if not self.wanted and self.answers is not None and self.answers > _MOST_ANSWERS:
            raise click.UsageError(f"--concurrency is at most {_MOST_ANSWERS} without --batch")

    @property
    def concurrency(self) -> int:
        """How many answers are judged at once."""
        return self.answers or (_BATCH_ANSWERS if self.wanted else _ANSWERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingOptions:
    """What is measured, and by whom."""

    passes: PassOptions = group(PassOptions)
    criteria: tuple[str, ...] = criteria_option()
    judge: JudgeOptions = group(JudgeOptions)
    batch: BatchOptions = group(BatchOptions)

    def chosen(self) -> ChosenEvaluator:
        """Return the evaluator, not opened yet.

        Raises:
            ConfigError: the configuration is wrong.
            UsageError: options do not go together.
        """
        only = ("judge", "evaluate", "extract", "attach", "sessions", "ui")
        concurrency = self.batch.concurrency

        def metrics() -> list[dict[str, Any]]:
            return [*self.passes.metrics(), *criteria_metrics(self.criteria)]

        return self.judge.evaluator(metrics, max_concurrency=concurrency, only=only)


def _shared_budget(path: Path) -> CollectorBudget:
    from ragtrace_collector.cli.shared_budget import read_shared_budget

    return read_shared_budget(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """What a run may spend."""

    max_cost: float | None = option(
        "--max-cost",
        type=click.FloatRange(min=0, min_open=True, max=1e9, max_open=True),
        metavar="USD",
        help="Stop before a request could make the run cost more; --resume continues with what is left.",
    )
    max_tokens: int | None = option(
        "--max-tokens", type=click.IntRange(min=1), metavar="N", help="The same for tokens."
    )
    max_calls: int | None = option(
        "--max-calls", type=click.IntRange(min=1), metavar="N", help="The same for requests."
    )
    shared: CollectorBudget | None = option(
        "--collector",
        type=EXISTING_FILE,
        metavar="FILE",
        parse=_shared_budget,
        help="The configuration of a collector on this machine: spend from its `budget.backfill`, and wait"
        " while live answers are due.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions:
    """What a run may spend, and what is said before."""

    budget: BudgetOptions = group(BudgetOptions)
    pilot: int | None = option(
        "--pilot",
        type=click.IntRange(min=_LEAST_PILOT, max=100_000),
        metavar="N",
        selects=True,
        help="First judge N random answers to estimate the cost: 20 for a rough estimate, 200 for a good one."
        " The run sends their verdicts too.",
    )
    is_agreed: bool = option("--yes", "-y", is_flag=True, help="Spend without asking. Free judges never ask.")
    dry_run: bool = option(
        "--dry-run",
        is_flag=True,
        help="Show what would be judged and its cost. Sends nothing; asks no judge except for --pilot.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where verdicts go."""

    destination: str | None = option(
        "--to",
        metavar="ENDPOINT",
        help="An OTLP endpoint, or otlp-file:PATH; phoenix:http://HOST:6006 for annotations,"
        " langfuse:https://HOST for scores, and logs:ENDPOINT for OTLP log records.",
    )
    headers: Mapping[str, str] = to_headers_option()
    openinference: bool | None = option(
        "--openinference/--no-openinference",
        default=None,
        help="Also write OpenInference's evaluations.<i>.* on carriers. [default: if --to is known to read"
        " them: Phoenix by port 6006, or Arize]",
    )
    reports: ReportOptions = group(ReportOptions)
    json: JsonOption = group(JsonOption)


@command()
@takes(
    read=("What to read", ReadOptions),
    judging=("How to judge", JudgingOptions),
    cost=("What it may cost", CostOptions),
    output=("What to write", OutputOptions),
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
    from ragtrace.cli.backfill_run import run_backfill

    click.get_current_context().exit(run_backfill(read, judging, cost, output))
