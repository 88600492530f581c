"""One run of `ragtrace backfill`: opens what it reads, asks and writes, and tells what came of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click

from ragtrace import _standard_input, process
from ragtrace import backfill as library
from ragtrace.backends import OtlpFileReader, open_carrier_sink, open_reader, reads_openinference
from ragtrace.backfill import BackfillReport, DryRun, Progress, ResumableRun, Selection, SpanId
from ragtrace.budget import load_prices
from ragtrace.cli.backfill import (
    CostOptions,
    JudgingOptions,
    OutputOptions,
    ReadOptions,
    SearchOptions,
    is_file,
)
from ragtrace.cli.backfill_cost import OVER_BUDGET, STDIN, BackfillBudget, agree, exit_code_of, must_agree
from ragtrace.cli.backfill_output import (
    OnEvaluated,
    ProgressBar,
    answer_listener,
    if_kept,
    print_report,
    report_not_found,
    share_of,
)
from ragtrace.cli.evaluator_options import ChosenEvaluator
from ragtrace.cli.judge_choice import introduce, is_free, warn_of_old_prices
from ragtrace.cli.options import access
from ragtrace.cli.record_files import UnreadableParts
from ragtrace.cli.render import many, talk, utc
from ragtrace.cli.report_files import Reports, TranscriptFile, ending_of, ending_of_pilot
from ragtrace.cli.script import INTERRUPTED
from ragtrace.conversations.turns import SessionSettings
from ragtrace.errors import JudgeTimeout
from ragtrace.files.private import refuse_link
from ragtrace.judge.batch import batches_of
from ragtrace.judge.spec import BatchSettings
from ragtrace.pipeline.evaluator import Evaluator, EvaluatorSpec
from ragtrace.ports import SpanSink, TraceQuery, TraceReader
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.attach import AttachOptions

_FILE: Final = "otlp-file:"
_BATCHED: Final = "openai"
EMPTY_EXPORT: Final = b""
"""A serialized ``ExportTraceServiceRequest`` without spans: valid, and nothing comes of it."""


def run_backfill(read: ReadOptions, judging: JudgingOptions, cost: CostOptions, output: OutputOptions) -> int:
    """Run it, print what came of it, and return the exit code.

    Raises:
        UsageError: options do not go together.
        ConfigError: one of them is wrong.
    """
    transcript = click.get_current_context().with_resource(TranscriptFile(output.reports.transcripts))
    budget = BackfillBudget.of(cost.budget)
    path = read.progress_path or Progress.default_path(
        source=read.source, destination=output.destination or ""
    )
    chosen = judging.chosen()
    spec = _in_batches(chosen.spec, path, judging.batch.poll_s) if judging.batch.wanted else chosen.spec
    _check(read, cost, output)
    evaluator = transcript.recorded(_opened(spec, budget), spec.metrics)
    bar = ProgressBar(
        spent=lambda: budget.told(evaluator),
        waiting_for=lambda: budget.waiting_for,
        is_wanted=not output.json.wanted,
    )
    free = is_free(evaluator, spec.judge)
    run = _Run(
        read=read,
        output=output,
        selection=_selection(read, chosen),
        evaluator=evaluator,
        concurrency=judging.batch.concurrency,
        budget=budget,
        pilot=cost.pilot or 0,
        asks=not cost.dry_run and must_agree(read.source, is_agreed=cost.is_agreed, is_free=free),
        attach=_attach_options(chosen, output, read.source),
        sessions=_sessions(read, chosen),
        bar=bar,
        progress_path=path,
    )
    links = chosen.config.ui.links
    reports = Reports.of(output.reports, source=read.source, evaluator=evaluator, links=links)
    report, preview = _carried_out(run, reports, transcript, dry_run=cost.dry_run)
    is_whole = reports.is_whole and transcript.is_whole and not run.faults.number
    print_report(report, preview, prices=evaluator.prices, dry_run=cost.dry_run, as_json=output.json.wanted)
    run.faults.tell_rest()
    if cost.dry_run and preview:
        return exit_code_of(preview) or int(not is_whole)
    return _exit_code(report, is_whole=is_whole)


def _check(read: ReadOptions, cost: CostOptions, output: OutputOptions) -> None:
    if output.destination is None and not cost.dry_run:
        raise click.UsageError("--to ENDPOINT is missing: name where the verdicts go, or give --dry-run")
    if output.reports.paths and cost.dry_run and not cost.pilot:
        raise click.UsageError("--out writes judged answers, and --dry-run judges none without --pilot")
    if read.trace_ids and read.search.is_made:
        raise click.UsageError("--trace-id names the traces: leave out the options that search for them")
    if cost.pilot and output.destination is None:
        raise click.UsageError(
            "--pilot keeps its verdicts for the run that sends them: give the --to of that run"
        )
    if cost.pilot and read.source == STDIN and not cost.dry_run:
        raise click.UsageError(
            "--pilot reads the source twice, and standard input can be read once: name a file"
        )


def _in_batches(spec: EvaluatorSpec, path: Path, poll_s: float) -> EvaluatorSpec:
    if spec.second is not None and spec.second.kind != _BATCHED:
        raise click.UsageError(
            f"--batch asks the second judge in batches too: judge.second must be {_BATCHED}:MODEL"
        )
    batches = BatchSettings(path=path, poll_s=poll_s, tell=talk)
    return replace(
        spec,
        judge=replace(spec.judge, batches=batches),
        second=replace(spec.second, batches=batches) if spec.second else None,
    )


def _opened(spec: EvaluatorSpec, budget: BackfillBudget) -> Evaluator:
    prices = load_prices(spec.prices)
    prices = prices if spec.judge.batches is None else prices.in_batches()
    around = budget.around(prices)
    evaluator = spec.open(around=lambda _role, _judge: around, prices=prices)
    introduce(evaluator.judge)
    warn_of_old_prices(prices, evaluator.judge.identity)
    return evaluator


def _attach_options(chosen: ChosenEvaluator, output: OutputOptions, source: str) -> AttachOptions:
    from ragtrace_collector.judge.live import attach_options_of

    options, to = attach_options_of(chosen.config), output.destination
    openinference = output.openinference
    if openinference is None:
        openinference = to is not None and reads_openinference(to)
    # verdicts most likely go back to the source: Jaeger warns if a carrier is later than its target, and only
    # Tempo fails to find one that is dated then
    is_tempo = is_file(source) or source.startswith("tempo:")
    time_ = options.carrier_time if options.carrier_time != "auto" or is_tempo else "target"
    return replace(options, carrier_time=time_, openinference=openinference)


def _sessions(read: ReadOptions, chosen: ChosenEvaluator) -> SessionSettings | None:
    """Return how sessions are judged; ``None`` if they are not, or only some of their traces are read."""
    sessions = chosen.config.sessions
    if sessions.enabled and read.trace_ids:
        talk("sessions are not judged: --trace-id names single traces")
    tenant = (read.sampling or chosen.config.sample).tenant
    return sessions.opened(tenant=tenant) if sessions.enabled and not read.trace_ids else None


def _selection(read: ReadOptions, chosen: ChosenEvaluator) -> Selection:
    plan = read.sampling or SamplingPlan()
    return Selection(
        trace_ids=read.trace_ids,
        sampling=plan if read.ratio is None else replace(plan, ratio=read.ratio),
        limit=read.limit,
        only_unscored=read.only_unscored,
        rules=chosen.config.extract.opened(),
    )


def _carried_out(
    run: _Run, reports: Reports, transcript: TranscriptFile, *, dry_run: bool
) -> tuple[BackfillReport, DryRun | None]:
    listeners, metrics = (transcript.keep, reports.add), run.evaluator.metrics
    with reports:
        if dry_run:
            preview = process.run(run.preview(answer_listener(listeners, metrics, None)))
            reports.end(ending_of_pilot(preview))
            return preview.report, preview
        console = None if run.output.json.wanted else run.bar.console()
        report, estimated = process.run(run.carry_out(answer_listener(listeners, metrics, console)))
        reports.end(ending_of(report, told=reports.answers))
        return report, estimated


def _exit_code(report: BackfillReport, *, is_whole: bool) -> int:
    """Return the exit code, and say how to continue if something is left."""
    if report.broken_off:
        talk(f"{report.broken_off}\nbroken off; the same command with --resume continues from here")
    if report.is_stopped:
        talk("stopped; the same command with --resume continues from here")
        return INTERRUPTED
    if report.over_budget:
        left = many(report.left, "answer")
        if report.sessions_left:
            left += f" and {many(report.sessions_left, 'session')}"
        talk(
            f"nothing more was judged: {report.over_budget}. {left} left:"
            " raise the limit, and run the same command with --resume"
        )
        return OVER_BUDGET
    return int(not (report.is_clean and is_whole))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Opens what it reads and writes, and closes it."""

    read: ReadOptions
    output: OutputOptions
    selection: Selection
    evaluator: Evaluator
    concurrency: int
    budget: BackfillBudget
    pilot: int
    """How many answers are judged for the estimate."""
    asks: bool
    """Somebody must agree before anything is spent."""
    attach: AttachOptions
    sessions: SessionSettings | None
    bar: ProgressBar
    progress_path: Path
    faults: UnreadableParts = field(default_factory=UnreadableParts)

    async def preview(self, on_evaluated: OnEvaluated) -> DryRun:
        """Say what would be done."""
        async with self._opened() as (reader, selection, run):
            preview = await self._preview(reader, selection, run, on_evaluated)
            await report_not_found(reader, selection.query, preview.report)
            return preview

    async def _preview(
        self, reader: TraceReader, selection: Selection, run: ResumableRun, on_evaluated: OnEvaluated
    ) -> DryRun:
        with _stopped_by_ctrl_c(run):
            return await library.dry_run(
                reader,
                evaluator=self.evaluator,
                selection=selection,
                attach=self.attach,
                concurrency=self.concurrency,
                pilot=self.pilot,
                on_evaluated=on_evaluated,
                run=run,
                sessions=self.sessions,
            )

    async def carry_out(self, on_evaluated: OnEvaluated) -> tuple[BackfillReport, DryRun | None]:
        """Judge and send until it is done or Ctrl-C stops it; first show the estimate if it is wanted."""
        destination = self.output.destination or ""
        async with self._opened() as (reader, selection, run), aclosing(self._sink(destination)) as sink:
            # before money is spent: an address that is wrong fails here
            if is_file(destination):
                refuse_link(Path(destination.removeprefix(_FILE)))
            else:
                await sink.send(EMPTY_EXPORT)
            if not self.read.resume:
                since_ns, until_ns = _stretch(selection.query)
                run.progress.begin(run.name, since_ns=since_ns, until_ns=until_ns)
            preview = None
            if self.asks or self.pilot:
                preview = await self._preview(reader, selection, run, if_kept(on_evaluated))
                if not run.stop.is_set():
                    agree(preview, self.evaluator.prices, asks=self.asks)
                selection = replace(selection, limit=preview.left_of(selection.limit))
                self.bar.total = preview.to_judge
            self.bar.share = share_of(reader, selection.query)
            with _stopped_by_ctrl_c(run), self.bar.shown():
                report = await library.backfill(
                    reader,
                    sink,
                    evaluator=self.evaluator,
                    selection=selection,
                    attach=self.attach,
                    concurrency=self.concurrency,
                    on_evaluated=on_evaluated,
                    run=run,
                    sessions=self.sessions,
                    sleep=run.pause,
                )
            await report_not_found(reader, selection.query, report)
            _finish_batches(self.evaluator, report)
            if selection.query is None and not report.is_behind:
                await run.progress.reached(run.name, _stretch(None)[1])
            return report, preview

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[TraceReader, Selection, ResumableRun]]:
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(aclosing(self.evaluator))
            progress = opened.enter_context(Progress(self.progress_path))
            leaves = batches_of(self.evaluator.judge) is not None  # its answers may take a day
            run = ResumableRun(
                progress=progress, name=self._name(), leaves_waiting=leaves, watch=self.bar.watch
            )
            run = await opened.enter_async_context(self.budget.opened(run))
            found = open_reader(
                self.read.source,
                access=access(self.read.headers.headers),
                on_fault=self.faults.tell,
                sleep=run.pause,
            )
            reader = await opened.enter_async_context(aclosing(found))
            done = await _done(self.output.destination)
            yield reader, replace(self.selection, done=done, query=self._query(run)), run

    def _sink(self, destination: str) -> SpanSink:
        return open_carrier_sink(destination, access=access(self.output.headers.headers))

    @property
    def _search(self) -> SearchOptions | None:
        read = self.read
        is_whole = read.trace_ids or (is_file(read.source) and not read.search.is_made)
        return None if is_whole else read.search

    def _query(self, run: ResumableRun) -> TraceQuery | None:
        unfinished, search = run.progress.unfinished(run.name), self._search
        if self.read.resume and unfinished is None:
            raise click.UsageError("there is no stopped run of this search: leave out --resume")
        if search is None:
            return None
        query = search.query(time.time_ns())
        if unfinished is None:
            return query
        _, until_ns, reached_ns = unfinished
        if self.read.resume:
            return replace(query, since_ns=reached_ns, until_ns=until_ns)
        talk(f"a run of this search stopped at {utc(reached_ns, seconds=True)}: --resume continues there")
        return query

    def _name(self) -> str:
        """Name the run: the same search by the same evaluator goes on with it."""
        metrics = sorted((metric.name, metric.profile) for metric in self.evaluator.metrics)
        chosen = self._searched() or self.selection.trace_ids
        told = repr((chosen, self.selection.sampling, metrics, self.evaluator.judge.identity))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def _searched(self) -> tuple[object, ...]:
        search = self._search
        if search is None:
            return ()
        typed = (str(search.since), str(search.until), str(search.min_age))
        return (search.service, search.operation, search.tags, search.traceql, *typed)


def _stretch(query: TraceQuery | None) -> tuple[int, int]:
    """Return the time that is searched; what is not searched has only a beginning and an end."""
    return (query.since_ns, query.until_ns) if query is not None else (0, 1)


def _finish_batches(evaluator: Evaluator, report: BackfillReport) -> None:
    """After a run, forget the replies that it used, and say what goes on at the provider.

    They are not forgotten where an answer waits for more, or had no news of a batch: it needs them again.
    """
    for batched in filter(None, map(batches_of, evaluator.judges)):
        if not (report.is_stopped or report.left or JudgeTimeout.error_type in report.failed):
            batched.forget()
        batches, requests = batched.unfinished()
        if batches:
            where = "in a batch" if batches == 1 else f"in {batches:,} batches"
            talk(
                f"{many(requests, 'request')} {where} at the provider: the same command takes the"
                " replies within 30 days, and pays for none twice"
            )


@contextmanager
def _stopped_by_ctrl_c(run: ResumableRun) -> Iterator[None]:
    """Finish or leave what is under way on the first Ctrl-C, and be gone at once on the second."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        run.stop.set()
        _standard_input.leave()
        loop.remove_signal_handler(signal.SIGINT)
        what = (
            "leaving the requests in batches" if run.leaves_waiting else "finishing the answers in progress"
        )
        talk(f"{what}; press Ctrl-C again to quit at once")

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
