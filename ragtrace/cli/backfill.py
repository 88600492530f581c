"""``ragtrace backfill``: judge the answers in stored traces."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, get_args

import click

from ragtrace import backfill as library
from ragtrace.backends import OtlpFileReader, open_carrier_sink, open_reader
from ragtrace.backends.web import Access
from ragtrace.backfill import BackfillReport, Progress, Rehearsal, Run, Selection, SpanId
from ragtrace.cli.absence import tell_absence
from ragtrace.cli.bar import Bar, share_of, to_judge
from ragtrace.cli.batching import batch_options, settle, waits_for_batches
from ragtrace.cli.checks import EMPTY_EXPORT
from ragtrace.cli.estimate import (
    Planning,
    agree,
    estimate_json,
    estimate_lines,
    exit_code_of,
    is_free,
    planning_options,
)
from ragtrace.cli.faults import Faults
from ragtrace.cli.options import (
    JudgeChoice,
    introduce,
    json_option,
    judge_options,
    mapping_option,
    metric_options,
    sampling_option,
    second_judge_option,
)
from ragtrace.cli.outcomes import OutcomeTable
from ragtrace.cli.reporting import ReportChoice, ending_of, ending_of_pilot, report_options
from ragtrace.cli.script import INTERRUPTED
from ragtrace.cli.sources import SearchChoice, access_options, destination_access_options, search_options
from ragtrace.cli.spending import OVER_BUDGET, Spending, spending_options
from ragtrace.cli.terminal import by_kind, many, open_console, print_json, talk
from ragtrace.cli.transcribing import Transcribing, transcripts_option
from ragtrace.judge import Prices
from ragtrace.ports import Judge, Metric, SpanSink, TraceQuery, TraceReader
from ragtrace.reports import JudgedAnswer
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.attach import AttachOptions, CarrierTime
from ragtrace.traces.extract import AttributeMapping

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["backfill"]

_FILE: Final = "otlp-file:"
_MOST_SHOWN: Final = 20

OnEvaluated: TypeAlias = Callable[[JudgedAnswer], None]


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
    help="Where it is kept what was judged and sent.  [default: under XDG_STATE_HOME, by source and"
    " destination]",
)
@mapping_option
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
    access: Access,
    destination_access: Access,
    search: SearchChoice,
    trace_ids: tuple[str, ...],
    ratio: float | None,
    sampling: SamplingPlan | None,
    limit: int | None,
    only_unscored: bool,
    resume: bool,
    progress_path: Path | None,
    mapping: AttributeMapping | None,
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
    second = judge.open_second(second_judge, max_concurrency=concurrency, around=around)
    second = transcribing.around_second(second)
    bar = Bar(
        spent=lambda: spending.told((opened, second), judge.prices),
        waiting_for=lambda: spending.waiting_for,
        is_wanted=not as_json,
    )
    run = _Run(
        source=source,
        destination=destination,
        access=access,
        destination_access=destination_access,
        search=None if trace_ids or (_is_file(source) and not search.is_made) else search,
        selection=Selection(
            trace_ids=trace_ids,
            sampling=_with_ratio(sampling, ratio),
            limit=limit,
            only_unscored=only_unscored,
            mapping=mapping,
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
    rehearsal: Rehearsal | None
    with wanted.reports(
        source=source, metrics=metrics, judge=opened, second_judge=run.second_judge, prices=judge.prices
    ) as reports:
        listeners = (transcribing.keep, reports.add)
        if dry_run:
            rehearsal = asyncio.run(run.rehearse(_telling(listeners, metrics, None)))
            report = rehearsal.report
            reports.end(ending_of_pilot(rehearsal))
        else:
            told = _telling(listeners, metrics, None if as_json else bar.console())
            report, rehearsal = asyncio.run(run.carry_out(told))
            reports.end(ending_of(report, told=reports.answers))
    is_whole = reports.is_whole and transcribing.is_whole and not run.faults.number
    _print_report(report, rehearsal, prices=judge.prices, dry_run=dry_run, as_json=as_json)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run: opens what it reads and writes, and closes it."""

    source: str
    destination: str | None
    access: Access
    destination_access: Access
    search: SearchChoice | None
    selection: Selection
    metrics: tuple[Metric, ...]
    judge: Judge
    second_judge: Judge | None
    concurrency: int
    spending: Spending
    planning: Planning
    asks: bool
    """Somebody must agree before anything is spent."""
    prices: Prices
    attach: AttachOptions
    bar: Bar
    progress_path: Path
    resume: bool
    faults: Faults = field(default_factory=Faults)

    async def rehearse(self, on_evaluated: OnEvaluated) -> Rehearsal:
        """Say what would be done."""
        async with self._opened() as (reader, selection, run):
            rehearsal = await self._rehearsed(reader, selection, run, on_evaluated)
            await tell_absence(reader, selection.query, rehearsal.report)
            return rehearsal

    async def _rehearsed(
        self, reader: TraceReader, selection: Selection, run: Run, on_evaluated: OnEvaluated
    ) -> Rehearsal:
        with _stopped_by_ctrl_c(run):
            return await library.rehearse(
                reader,
                metrics=self.metrics,
                judge=self.judge,
                second_judge=self.second_judge,
                selection=selection,
                attach=self.attach,
                concurrency=self.concurrency,
                pilot=self.planning.pilot,
                prices=self.prices,
                on_evaluated=on_evaluated,
                run=run,
            )

    async def carry_out(self, on_evaluated: OnEvaluated) -> tuple[BackfillReport, Rehearsal | None]:
        """Judge and send, until it is done or Ctrl-C stops it; where asked, say first what it takes."""
        assert self.destination is not None
        async with self._opened() as (reader, selection, run), aclosing(self._sink()) as sink:
            if not _is_file(self.destination):
                await sink.send(EMPTY_EXPORT)  # before money is spent: an address that is wrong fails here
            if not self.resume:
                since_ns, until_ns = _stretch(selection.query)
                run.progress.begin(run.name, since_ns=since_ns, until_ns=until_ns)
            rehearsal = None
            if self.asks or self.planning.pilot:
                rehearsal = await self._rehearsed(reader, selection, run, _if_kept(on_evaluated))
                if not run.stop.is_set():
                    agree(rehearsal, self.prices, asks=self.asks)
                selection = replace(selection, limit=rehearsal.left_of(selection.limit))
                self.bar.total = rehearsal.to_judge
                self.bar.total = to_judge(rehearsal)
            self.bar.share = share_of(reader, selection.query)
            with _stopped_by_ctrl_c(run), self.bar.shown():
                report = await library.backfill(
                    reader,
                    sink,
                    metrics=self.metrics,
                    judge=self.judge,
                    second_judge=self.second_judge,
                    selection=selection,
                    attach=self.attach,
                    concurrency=self.concurrency,
                    on_evaluated=on_evaluated,
                    run=run,
                    sleep=run.pause,
                )
            await tell_absence(reader, selection.query, report)
            settle((self.judge, self.second_judge), report)
            if selection.query is None and not report.is_behind:
                await run.progress.reached(run.name, _stretch(None)[1])
            return report, rehearsal

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[TraceReader, Selection, Run]]:
        async with AsyncExitStack() as opened:
            for judge in (self.judge, self.second_judge):
                if judge is not None:
                    await opened.enter_async_context(aclosing(judge))
            progress = opened.enter_context(Progress(self.progress_path))
            leaves = waits_for_batches(self.judge)
            run = Run(progress=progress, name=self._name(), leaves_waiting=leaves, watch=self.bar.watch)
            run = await opened.enter_async_context(self.spending.opened(run))
            reader = await opened.enter_async_context(aclosing(self._reader(run)))
            done = await _done(self.destination)
            yield reader, replace(self.selection, done=done, query=self._query(run)), run

    def _sink(self) -> SpanSink:
        assert self.destination is not None
        return open_carrier_sink(self.destination, access=self.destination_access)

    def _reader(self, run: Run) -> TraceReader:
        return open_reader(self.source, access=self.access, on_fault=self.faults.tell, sleep=run.pause)

    def _query(self, run: Run) -> TraceQuery | None:
        unfinished = run.progress.unfinished(run.name)
        if self.resume and unfinished is None:
            raise click.UsageError("no such run was stopped before its end: leave --resume out")
        if self.search is None:
            return None
        query = self.search.query(time.time_ns())
        if unfinished is None:
            return query
        _, until_ns, reached_ns = unfinished
        if self.resume:
            return replace(query, since_ns=reached_ns, until_ns=until_ns)
        talk(f"a run of this search was stopped at {_date(reached_ns)}: --resume goes on there")
        return query

    def _name(self) -> str:
        """Name the run: the same search by the same evaluator goes on with it."""
        metrics = sorted((metric.name, metric.profile) for metric in self.metrics)
        chosen = self._searched() or self.selection.trace_ids
        told = repr((chosen, self.selection.sampling, metrics, self.judge.identity))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def _searched(self) -> tuple[object, ...]:
        search = self.search
        if search is None:
            return ()
        typed = (str(search.since), str(search.until), str(search.min_age))
        return (search.service, search.operation, search.tags, search.traceql, *typed)


def _stretch(query: TraceQuery | None) -> tuple[int, int]:
    """Return the time that is searched; what is not searched has only a beginning and an end."""
    return (query.since_ns, query.until_ns) if query is not None else (0, 1)


@contextmanager
def _stopped_by_ctrl_c(run: Run) -> Iterator[None]:
    """Finish or leave what is under way on the first Ctrl-C, and be gone at once on the second."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        run.stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        what = "leaving what waits for batches" if run.leaves_waiting else "finishing what is under way"
        talk(f"{what}; Ctrl-C again leaves at once")

    with suppress(RuntimeError, ValueError):  # outside the main thread no signal comes
        loop.add_signal_handler(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _done(destination: str | None) -> frozenset[SpanId]:
    """Return the spans of a destination that can be read: a file."""
    path = (destination or "").removeprefix(_FILE)
    if path == destination or not await asyncio.to_thread(os.path.exists, path):
        return frozenset()
    return await library.span_ids(OtlpFileReader(path))


def _carrier_time(choice: CarrierTime, source: str) -> CarrierTime:
    # who reads from a back end most likely writes to it: Jaeger draws a warning on a carrier later than its
    # target, and only Tempo finds none that is dated then
    is_tempo = _is_file(source) or source.startswith("tempo:")
    return choice if choice != "auto" or is_tempo else "target"


def _is_file(address: str) -> bool:
    return address.startswith(_FILE)


def _date(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _telling(
    listeners: Sequence[OnEvaluated], metrics: tuple[Metric, ...], console: Console | None
) -> OnEvaluated:
    table = console and OutcomeTable(console, metrics=metrics, id_title="trace", id_width=32)

    def tell(answer: JudgedAnswer) -> None:
        for listener in listeners:
            listener(answer)
        if table:
            table.print_evaluation(answer.record, answer.evaluation)

    return tell


def _if_kept(tell: OnEvaluated) -> OnEvaluated:
    """Tell of a pilot's answers whose verdicts are kept: the run judges the others again."""
    return lambda answer: tell(answer) if answer.carrier_span_id else None


def _print_report(
    report: BackfillReport, rehearsal: Rehearsal | None, *, prices: Prices, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        told = estimate_json(rehearsal) if rehearsal else {}
        print_json({"dry_run": dry_run, **asdict(report), **told})
        return
    console = open_console()
    console.print()
    for line in _lines(report, dry_run=dry_run):
        console.print(line)
    if dry_run and rehearsal:
        for line in estimate_lines(rehearsal, prices):
            console.print(line, soft_wrap=True)


def _lines(report: BackfillReport, *, dry_run: bool) -> Iterator[str]:
    labels = f" ({', '.join(f'{label} {number}' for label, number in sorted(report.labels.items()))})"
    yield f"traces   {report.traces} read, {report.without_record} of them without a RAG call"
    if report.unreadable:
        yield f"         {by_kind(report.unreadable)} could not be read"
    if report.not_found:
        yield f"         not found: {', '.join(report.not_found[:_MOST_SHOWN])}{_and_more(report.not_found)}"
    if report.unread:
        yield f"         not readable: {', '.join(report.unread[:_MOST_SHOWN])}{_and_more(report.unread)}"
    if report.cut_windows:
        yield f"         {report.cut_windows} moments had more traces than the source gives: some are missing"
    yield f"records  {report.records}, of these:"
    yield f"  judged             {report.judged}{labels if report.labels else ''}"
    yield f"  ineligible         {by_kind(report.ineligible)}"
    yield f"  failed             {by_kind(report.failed)}"
    yield f"  sampled out        {report.sampled_out}"
    yield f"  already evaluated  {report.already_evaluated}"
    if report.left or report.is_stopped:
        yield f"  left               {report.left}"
    if dry_run:
        yield "dry run: nothing was sent; `judged` are those that would be"
        return
    usage = report.usage
    yield f"sent     {report.sent}, rejected {by_kind(report.rejected)}"
    yield f"calls    {usage.calls}, tokens {usage.input_tokens} in, {usage.output_tokens} out"


def _and_more(listed: Sequence[object]) -> str:
    return f" and {len(listed) - _MOST_SHOWN} more" if len(listed) > _MOST_SHOWN else ""
