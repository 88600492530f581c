"""The command: its options, and what they are put together to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, get_args

import click

from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backfill import BackfillReport, DryRun, Progress, Selection
from ragtrace.cli.backfill.bar import Bar
from ragtrace.cli.backfill.batching import batch_options
from ragtrace.cli.backfill.running import BackfillRun, is_file
from ragtrace.cli.backfill.telling import print_report, telling
from ragtrace.cli.estimate import Planning, exit_code_of, is_free, planning_options
from ragtrace.cli.options import (
    JudgeChoice,
    extract_options,
    introduce,
    json_option,
    judge_options,
    metric_options,
    sampling_option,
    second_judge_option,
    warn_of_old_prices,
)
from ragtrace.cli.reporting import ReportChoice, ending_of, ending_of_pilot, report_options
from ragtrace.cli.script import INTERRUPTED
from ragtrace.cli.sources import SearchChoice, access_options, destination_access_options, search_options
from ragtrace.cli.spending import OVER_BUDGET, Spending, spending_options
from ragtrace.cli.terminal import many, talk
from ragtrace.cli.transcribing import Transcribing, transcripts_option
from ragtrace.ports import Metric
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.attach import AttachOptions, CarrierTime
from ragtrace.traces.extract import ExtractRules


@click.command()
@click.option(
    "--from",
    "source",
    required=True,
    metavar="SOURCE",
    help="jaeger:http://HOST:16686, jaeger:grpc://HOST:16685, tempo:http://HOST:3200, phoenix:http://HOST:6006,"
    " langfuse:https://HOST, or otlp-file:PATH: a file, a folder, or - for standard input.",
)
@click.option(
    "--to",
    "destination",
    metavar="ENDPOINT",
    help="OTLP endpoint, or otlp-file:PATH; phoenix:http://HOST:6006 for annotations and langfuse:https://HOST"
    " for scores.",
)
@access_options
@destination_access_options
@search_options
@click.option(
    "--trace-id", "trace_ids", multiple=True, metavar="ID", help="Only this trace; may be repeated."
)
@click.option(
    "--rate",
    "--ratio",
    "ratio",
    type=click.FloatRange(0, 1),
    metavar="R",
    help="Share of traces, chosen by trace id as the collector chooses.  [default: 1.0]",
)
@sampling_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Judge no more than N answers.")
@click.option("--only-unscored", is_flag=True, help="Leave out what any evaluator of ragtrace has judged.")
@click.option("--resume", is_flag=True, help="Go on where the last run of the same search was stopped.")
@click.option(
    "--progress",
    "progress_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where it is kept what was judged and sent.  [default: in the state folder, by source and"
    " destination]",
)
@extract_options
@metric_options
@judge_options
@second_judge_option
@batch_options
@spending_options
@planning_options
@click.option(
    "--carrier-time",
    type=click.Choice(get_args(CarrierTime)),
    default="auto",
    show_default=True,
    help="Date verdicts inside the answer's span (target: Jaeger) or now (Tempo, for old traces). auto: "
    "target for traces out of a Jaeger and answers of the last two minutes, else now.",
)
@report_options
@transcripts_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would be done, and what it would cost; send nothing, and ask no judge but for a --pilot.",
)
@json_option
def backfill(
    source: str,
    destination: str | None,
    access: ConnectionSettings,
    destination_access: ConnectionSettings,
    search: SearchChoice,
    trace_ids: tuple[str, ...],
    ratio: float | None,
    sampling: SamplingPlan | None,
    limit: int | None,
    only_unscored: bool,
    resume: bool,
    progress_path: Path | None,
    rules: ExtractRules,
    metrics: tuple[Metric, ...],
    judge: JudgeChoice,
    second_judge: str | None,
    concurrency: int,
    spending: Spending,
    planning: Planning,
    carrier_time: CarrierTime,
    wanted: ReportChoice,
    transcribing: Transcribing,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Judge the answers in stored traces, and send the verdicts after them.

    Each verdict is a span of the answer's own trace, with the id the collector would give it. Left out are
    answers that the same evaluator has judged: their verdict stands in the source, or in a destination that
    is a file, or an earlier run sent it there. Answers the judge failed on get no span: run it again to try
    them again. Ctrl-C finishes what is under way; --resume goes on.

    Exit code 0 if nothing failed, else 1; 3 if what may be spent is spent; 130 if it was stopped.

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
    if destination is None and not dry_run:
        raise click.UsageError("--to ENDPOINT is missing: where do the verdicts go? Or give --dry-run.")
    if wanted.paths and dry_run and not planning.pilot:
        raise click.UsageError("--out tells what was judged, and a dry run judges its --pilot alone")
    if trace_ids and search.is_made:
        raise click.UsageError("--trace-id names the traces: leave out what searches for them")
    planning.check(source=source, destination=destination, dry_run=dry_run)
    around = spending.around(judge.prices)
    opened = transcribing.around(judge.open(max_concurrency=concurrency, around=around))
    introduce(opened)
    warn_of_old_prices(judge.prices, opened.identity)
    second = judge.open_second(second_judge, max_concurrency=concurrency, around=around)
    second = transcribing.around_second(second)
    bar = Bar(
        spent=lambda: spending.told((opened, second), judge.prices),
        waiting_for=lambda: spending.waiting_for,
        is_wanted=not as_json,
    )
    run = BackfillRun(
        source=source,
        destination=destination,
        access=access,
        destination_access=destination_access,
        search=None if trace_ids or (is_file(source) and not search.is_made) else search,
        selection=Selection(
            trace_ids=trace_ids,
            sampling=_with_ratio(sampling, ratio),
            limit=limit,
            only_unscored=only_unscored,
            rules=rules,
        ),
        metrics=metrics,
        judge=opened,
        second_judge=second,
        concurrency=concurrency,
        spending=spending,
        planning=planning,
        asks=not dry_run and planning.asks(source=source, is_free=is_free(judge, (opened, second))),
        prices=judge.prices,
        attach=AttachOptions(carrier_time=_carrier_time(carrier_time, source)),
        bar=bar,
        progress_path=progress_path or Progress.default_path(source=source, destination=destination or ""),
        resume=resume,
    )
    rehearsal: DryRun | None
    with wanted.reports(
        source=source, metrics=metrics, judge=opened, second_judge=run.second_judge, prices=judge.prices
    ) as reports:
        listeners = (transcribing.keep, reports.add)
        if dry_run:
            rehearsal = asyncio.run(run.rehearse(telling(listeners, metrics, None)))
            report = rehearsal.report
            reports.end(ending_of_pilot(rehearsal))
        else:
            told = telling(listeners, metrics, None if as_json else bar.console())
            report, rehearsal = asyncio.run(run.carry_out(told))
            reports.end(ending_of(report, told=reports.answers))
    is_whole = reports.is_whole and transcribing.is_whole and not run.faults.number
    print_report(report, rehearsal, prices=judge.prices, dry_run=dry_run, as_json=as_json)
    run.faults.tell_rest()
    if dry_run and rehearsal:
        click.get_current_context().exit(exit_code_of(rehearsal) or not is_whole)
    _end(report, is_whole=is_whole)


def _end(report: BackfillReport, *, is_whole: bool) -> NoReturn:
    """Say how to go on where something is left, and leave with the exit code."""
    context = click.get_current_context()
    if report.broken_off:
        talk(f"{report.broken_off}\nbroken off; the same command with --resume goes on from here")
    if report.is_stopped:
        talk("stopped; the same command with --resume goes on from here")
        context.exit(INTERRUPTED)
    if report.over_budget:
        talk(
            f"nothing more was judged: {report.over_budget}. {many(report.left, 'answer')} left:"
            " allow more, and give the same command with --resume"
        )
        context.exit(OVER_BUDGET)
    context.exit(not (report.is_clean and is_whole))


def _with_ratio(plan: SamplingPlan | None, ratio: float | None) -> SamplingPlan:
    chosen = plan or SamplingPlan()
    return chosen if ratio is None else replace(chosen, ratio=ratio)


def _carrier_time(choice: CarrierTime, source: str) -> CarrierTime:
    # who reads from a back end most likely writes to it: Jaeger draws a warning on a carrier later than its
    # target, and only Tempo finds none that is dated then
    is_tempo = is_file(source) or source.startswith("tempo:")
    return choice if choice != "auto" or is_tempo else "target"
