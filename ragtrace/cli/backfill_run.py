"""One run of `ragtrace backfill`: opens what it reads, asks and writes, and tells what came of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from ragtrace import backfill as library
from ragtrace import process
from ragtrace._input import end_standard_input
from ragtrace.backends import OtlpFileReader, open_carrier_sink, open_reader, reads_openinference
from ragtrace.backfill import (
    BackfillReport,
    DryRun,
    EstimateRange,
    Progress,
    ResumableRun,
    Selection,
    SpanId,
)
from ragtrace.backfill.progress import RunCounts, RunLedger, run_budget
from ragtrace.budget import NANO, BudgetGuard, Limit, Prices, Spending, budgeted, load_prices, require_price
from ragtrace.cli import INTERRUPTED
from ragtrace.cli.backfill import (
    CostOptions,
    JudgingOptions,
    OutputOptions,
    ReadOptions,
    SearchOptions,
    is_file,
)
from ragtrace.cli.judging import (
    LeftOutRows,
    Reports,
    ending_of,
    ending_of_pilot,
    introduce,
    is_free,
    warn_of_old_prices,
)
from ragtrace.cli.options import ChosenEvaluator, access
from ragtrace.cli.outcomes import OutcomeTable
from ragtrace.cli.render import (
    by_kind,
    dollars,
    many,
    one_line,
    open_console,
    print_json,
    rough_duration,
    shortened,
    talk,
    utc,
)
from ragtrace.conversations import SessionSettings
from ragtrace.errors import JudgeTimeout, ReadError
from ragtrace.files import refuse_link
from ragtrace.judge import spent_by
from ragtrace.judge.batch import batches_of
from ragtrace.judge.spec import BatchSettings
from ragtrace.model import JudgedAnswer, JudgeIdentity
from ragtrace.pipeline import Evaluator, EvaluatorSpec
from ragtrace.ports import Judge, Metric, SpanSink, TraceQuery, TraceReader
from ragtrace.process import SystemClock
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.otlp import encode

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace_collector.cli.shared_budget import CollectorBudget, OpenCollectorBudget


_FILE: Final = "otlp-file:"
_BATCHED: Final = "openai"


def run_backfill(read: ReadOptions, judging: JudgingOptions, cost: CostOptions, output: OutputOptions) -> int:
    """Run it, print what came of it, and return the exit code.

    Raises:
        UsageError: options do not go together.
        ConfigError: one of them is wrong.
    """
    most = cost.budget
    limit = Limit.of(calls=most.max_calls, tokens=most.max_tokens, usd=most.max_cost)
    budget = BackfillBudget(limit=limit, shared=most.shared)
    path = read.progress_path or Progress.default_path(
        source=read.source, destination=output.destination or ""
    )
    chosen = judging.chosen()
    spec = _in_batches(chosen.spec, path, judging.batch.poll_s) if judging.batch.wanted else chosen.spec
    _check(read, cost, output)
    evaluator = _opened(spec, budget)
    links = chosen.config.ui.links
    reports = Reports.of(output.reports, source=read.source, evaluator=evaluator, links=links)
    evaluator = reports.recorded(evaluator, spec.metrics)
    line = ProgressLine(
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
        line=line,
        progress_path=path,
    )
    report, preview = _carried_out(run, reports, dry_run=cost.dry_run)
    is_whole = reports.is_whole and not run.left_out.exit_code()
    print_report(report, preview, prices=evaluator.prices, dry_run=cost.dry_run, as_json=output.json.wanted)
    asked = preview.pilot if cost.dry_run and preview else report
    return _exit_code(report, asked, is_whole=is_whole)


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
    warn_of_old_prices(evaluator.judges, prices)
    return evaluator


def _attach_options(chosen: ChosenEvaluator, output: OutputOptions, source: str) -> AttachOptions:
    from ragtrace_collector.judge import attach_options_of

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


def _carried_out(run: _Run, reports: Reports, *, dry_run: bool) -> tuple[BackfillReport, DryRun | None]:
    with reports:
        if dry_run:
            preview = process.run(run.preview(reports.add))
            reports.end(ending_of_pilot(preview))
            return preview.report, preview
        console = None if run.output.json.wanted else run.line.console()
        on_evaluated = answer_listener(reports, run.evaluator.metrics, console)
        report, estimated = process.run(run.carry_out(on_evaluated))
        reports.end(ending_of(report, told=reports.answers))
        return report, estimated


def _exit_code(report: BackfillReport, asked: BackfillReport, *, is_whole: bool) -> int:
    """Return the exit code, and say how to continue if something is left.

    ``asked`` tells of the requests that were made: those of the run, or of a dry run's pilot.
    """
    if report.broken_off:
        talk(f"{report.broken_off}\nbroken off; the same command with --resume continues from here")
    if report.is_stopped:
        talk("stopped; the same command with --resume continues from here")
        return INTERRUPTED
    if asked.over_budget:
        left = many(asked.left, "answer")
        if asked.sessions_left:
            left += f" and {many(asked.sessions_left, 'session')}"
        talk(
            f"nothing more was judged: {asked.over_budget}. {left} left:"
            " raise the limit, and run the same command with --resume"
        )
        return OVER_BUDGET
    return int(not (report.is_clean and asked.is_clean and is_whole))


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
    line: ProgressLine
    progress_path: Path
    left_out: LeftOutRows = field(default_factory=LeftOutRows)

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
                await sink.send(encode([]))
            if not self.read.resume:
                since_ns, until_ns = _stretch(selection.query)
                run.progress.begin(run.name, since_ns=since_ns, until_ns=until_ns)
            preview = None
            if self.asks or self.pilot:
                preview = await self._preview(reader, selection, run, if_kept(on_evaluated))
                if not run.stop.is_set():
                    agree(preview, self.evaluator.prices, asks=self.asks)
                selection = replace(selection, limit=preview.left_of(selection.limit))
                self.line.total = preview.to_judge
            self.line.share = share_of(reader, selection.query)
            with _stopped_by_ctrl_c(run), self.line.shown():
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
                progress=progress, name=self._name(), leaves_waiting=leaves, watch=self.line.watch
            )
            run = await opened.enter_async_context(self.budget.opened(run))
            found = open_reader(
                self.read.source,
                access=access(self.read.headers),
                on_fault=self.left_out.row_refused,
                sleep=run.pause,
            )
            reader = await opened.enter_async_context(aclosing(found))
            done = await _done(self.output.destination)
            yield reader, replace(self.selection, done=done, query=self._query(run)), run

    def _sink(self, destination: str) -> SpanSink:
        return open_carrier_sink(destination, access=access(self.output.headers))

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
        search, chosen = self._search, tuple[object, ...](self.selection.trace_ids)
        if search is not None:
            typed = (str(search.since), str(search.until), str(search.min_age))
            chosen = (search.service, search.operation, search.tags, search.traceql, *typed)
        metrics = sorted((metric.name, metric.profile) for metric in self.evaluator.metrics)
        told = repr((chosen, self.selection.sampling, metrics, self.evaluator.judge.identity))
        return hashlib.sha256(told.encode()).hexdigest()[:16]


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
        end_standard_input()
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


OVER_BUDGET: Final = 3
"""The exit code of a run whose budget is spent."""
STDIN: Final = "otlp-file:-"


@dataclass(slots=True, kw_only=True)
class BackfillBudget:
    """What a run may spend: its own limits, and the shared budget of a collector."""

    limit: Limit
    shared: CollectorBudget | None
    _opened: OpenCollectorBudget | None = None
    _spenders: list[Spending] = field(default_factory=list)

    def around(self, prices: Prices) -> Callable[[Judge], Judge]:
        """Return a layer that counts every request to a judge before it is made, once a run is open.

        It raises ConfigError if money is limited, and what the judge costs is not known.
        """

        def around(judge: Judge) -> Judge:
            self._check(judge.identity, prices)
            if judge.identity.computes:
                return judge  # it costs nothing
            return budgeted(judge, self._spenders, prices.price_of(judge.identity))

        return around

    @asynccontextmanager
    async def opened(self, run: ResumableRun) -> AsyncIterator[ResumableRun]:
        """Open the budgets of a run, and let live answers go first.

        Raises:
            ConfigError: the collector's store cannot be used.
            ReadError: there is no such store.
        """
        if self.limit != Limit():
            budget, ledger = run_budget(run.name, self.limit), RunLedger(progress=run.progress)
            self._spenders.append(BudgetGuard(budget=budget, ledger=ledger, clock=SystemClock()).spending)
        if self.shared is None:
            yield run
            return
        async with self.shared.opened(run.stop) as self._opened:
            if self._opened.spender is not None:
                self._spenders.append(self._opened.spender)
            yield replace(run, turn=self._opened.turn)

    @property
    def waiting_for(self) -> int:
        """Live answers that go first at this moment."""
        return self._opened.waiting_for if self._opened else 0

    def told(self, evaluator: Evaluator) -> str:
        """Say what the judges were asked so far, in dollars if that is known; nothing if it costs nothing."""
        asked = [(judge.identity, spent_by(judge)) for judge in evaluator.judges]
        tokens = sum(spent.input_tokens + spent.output_tokens for _, spent in asked)
        costs = [evaluator.prices.cost_usd(spent, who) for who, spent in asked]
        if not tokens:
            return ""
        if None in costs:
            return f"{tokens:,} tokens"
        most = f" of ${self.limit.usd_nano / NANO:,.2f}" if self.limit.usd_nano else ""
        return f"${sum(filter(None, costs)):,.2f}{most}"

    def _check(self, who: JudgeIdentity, prices: Prices) -> None:
        require_price(
            run_budget("", self.limit),
            who,
            prices,
            setting="--max-cost",
            remedy=(
                "name it in a file for --set judge.prices=FILE (at 0 for a model of your own), or give"
                " --max-tokens instead"
            ),
        )
        if self.shared is not None:
            self.shared.check(who, prices)


def must_agree(source: str, *, is_agreed: bool, is_free: bool) -> bool:
    """Say whether somebody must agree before anything is spent.

    Raises:
        UsageError: somebody must, and nobody can be asked.
    """
    if is_agreed or is_free:
        return False
    if source == STDIN or not sys.stdin.isatty():
        raise click.UsageError(
            "this judge may cost money, and there is no terminal to ask on:"
            " --dry-run shows how much, and --yes spends it"
        )
    return True


def agree(preview: DryRun, prices: Prices, *, asks: bool) -> None:
    """Tell what the run will take, and ask whether it shall.

    Raises:
        Abort: it shall not.
    """
    for line in estimate_lines(preview, prices):
        talk(line)
    if not asks or not preview.estimate.records:
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # an event loop would only note Ctrl-C
    try:
        click.confirm("continue?", default=False, abort=True, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def estimate_lines(preview: DryRun, prices: Prices) -> Iterator[str]:
    """Tell for people what the run will take."""
    estimate, pilot = preview.estimate, preview.pilot
    answers = f"estimate for {many(estimate.records, 'answer')}"
    if pilot.failed:
        yield f"the pilot failed on {by_kind(pilot.failed)}"
    if estimate.basis == "pilot":
        yield f"{answers}, from {estimate.pilot} that were judged (95 %):"
    elif estimate.calls is not None and not estimate.calls.high:
        yield f"{answers}: no request costs anything"
        return
    else:
        yield f"{answers}, from their sizes; --pilot N narrows it:"
    told = partial(_range, basis=estimate.basis)
    yield f"  calls       {told(estimate.calls, '{:,.0f}'.format)}"
    yield f"  tokens in   {told(estimate.input_tokens, '{:,.0f}'.format)}"
    yield f"  tokens out  {told(estimate.output_tokens, '{:,.0f}'.format)}"
    if estimate.usd is None:
        cost = "unknown: a pilot tells" if estimate.calls is None else "unknown: no price, or no tokens told"
    else:
        dated = f", prices of {prices.date}" if estimate.usd.high else ""
        cost = f"{told(estimate.usd, dollars)}{dated}"
    yield f"  cost        {cost}"
    yield f"  time        {told(estimate.seconds, rough_duration)}"
    if estimate.pilot:
        yield f"the pilot made {pilot.usage.calls:,} of the calls; the run sends its verdicts"


def _range(interval: EstimateRange | None, write: Callable[[float], str], *, basis: str) -> str:
    if interval is None:
        return "unknown: a pilot tells" if basis == "sizes" else "unknown"
    low, likely, high = (write(number) for number in (interval.low, interval.likely, interval.high))
    return likely if low == high else f"{likely} ({low} to {high})"


_MOST_CHARS: Final = 700
_MOST_NAMED: Final = 10

OnEvaluated: TypeAlias = Callable[[JudgedAnswer], None]


def answer_listener(reports: Reports, metrics: Sequence[Metric], console: Console | None) -> OnEvaluated:
    """Return what tells the reports of an answer, and writes its row if there is a console."""
    table = console and OutcomeTable(console, metrics=metrics, id_title="trace", id_width=32)

    def tell(answer: JudgedAnswer) -> None:
        reports.add(answer)
        if table:
            table.print_evaluation(answer.record, answer.evaluation)

    return tell


def if_kept(tell: OnEvaluated) -> OnEvaluated:
    """Tell of a pilot's answers whose verdicts are kept: the run judges the others again."""
    return lambda answer: tell(answer) if answer.carrier_span_id else None


def print_report(
    report: BackfillReport, preview: DryRun | None, *, prices: Prices, dry_run: bool, as_json: bool
) -> None:
    """Print what became of all, and what a dry run says it will take."""
    if as_json:
        told: dict[str, object] = {"dry_run": dry_run, **asdict(report)}
        if preview:
            told["estimate"] = asdict(preview.estimate)
            told["pilot"] = asdict(preview.pilot) if preview.has_pilot else None
        print_json(told)
        return
    console = open_console()
    console.print()
    for line in _lines(report, dry_run=dry_run):
        console.print(line)
    if dry_run and preview:
        for line in estimate_lines(preview, prices):
            console.print(line, soft_wrap=True)


def _lines(report: BackfillReport, *, dry_run: bool) -> Iterator[str]:
    """Yield the counts that are not zero, in their order, then what it took."""
    for each in fields(BackfillReport):
        value = getattr(report, each.name)
        if each.name in _NO_COUNTS or not (value or each.name in _ALWAYS_TOLD):
            continue
        told = by_kind(value) if isinstance(value, Mapping) else str(value)
        if isinstance(value, list):
            told = shortened(", ".join(value), _MOST_CHARS)
        if each.name == "judged" and report.labels:
            told += f" ({by_kind(report.labels).partition(' (')[2]}"
        yield f"{each.name.replace('_', ' '):<18} {told}"
    if dry_run:
        yield "dry run: nothing was sent; `judged` are those that would be"
        return
    usage = report.usage
    yield f"{'calls':<18} {usage.calls}, tokens {usage.input_tokens} in, {usage.output_tokens} out"


_NO_COUNTS: Final = ("labels", "usage", "is_stopped", "over_budget", "broken_off")
_ALWAYS_TOLD: Final = ("traces", "records", "judged", "failed", "sent")


async def report_not_found(reader: TraceReader, query: TraceQuery | None, report: BackfillReport) -> None:
    """Say on stderr that a search found nothing, if so: where it looked, and whether its service is known."""
    if query is None or report.traces or report.not_found or report.unread or report.is_stopped:
        return
    names: Sequence[str] = ()
    ask = getattr(reader, "services", None)  # not all back ends tell them
    if ask is not None and query.service is not None:
        with suppress(ReadError):
            names = sorted(await ask())
    why = "--since searches further back, --min-age 0s includes the newest traces"
    if names and query.service not in names:
        others = ", ".join(map(one_line, names[:_MOST_NAMED]))
        why = (
            f"there is no service {query.service!r}, but {others}{', …' if len(names) > _MOST_NAMED else ''}"
        )
    talk(f"no trace was found from {utc(query.since_ns)} to {utc(query.until_ns)}: {why}")


class ProgressLine:
    """Shows how far a run is, on a terminal; everywhere else it shows nothing."""

    def __init__(self, *, spent: Callable[[], str], waiting_for: Callable[[], int], is_wanted: bool) -> None:
        self._spent = spent
        self._waiting_for = waiting_for
        self._console = open_console(stderr=True) if is_wanted and sys.stderr.isatty() else None
        self._ledger = RunCounts()
        self._began = time.monotonic()
        self.total: int | None = None
        """Answers to judge, if it is known."""
        self.share: Callable[[RunCounts], float | None] = lambda _: None
        """How much of the source is done."""

    def watch(self, ledger: RunCounts) -> None:
        """Look at these counts from now on."""
        self._ledger = ledger

    def console(self) -> Console:
        """Return where tables are printed: above the line, where both are on the terminal.

        Raises:
            ConfigError: rich is not installed.
        """
        is_above = self._console is not None and sys.stdout.isatty()
        return self._console if is_above and self._console else open_console()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line until the block ends."""
        if self._console is None:
            yield
            return
        from rich.live import Live
        from rich.text import Text

        self._began = time.monotonic()
        line = Live(
            console=self._console,
            get_renderable=lambda: Text(self._line(), no_wrap=True, overflow="ellipsis"),
            transient=True,
            redirect_stdout=False,
        )
        with line:
            yield

    def _line(self) -> str:
        ledger = self._ledger
        done = ledger.judged + sum([*ledger.failed.values(), *ledger.ineligible.values()])
        share = done / self.total if self.total else self.share(ledger)
        pace = f"{done / (time.monotonic() - self._began):.1f}/s"
        if waiting := self._waiting_for():
            pace = f"waiting for {waiting:,} live"
        part = "" if share is None else f"{min(1.0, share):.0%}"
        counted = f"{done:,} of {self.total:,}" if self.total else f"{done:,} judged"
        return " · ".join(filter(None, (part, counted, pace, self._spent())))


def share_of(reader: TraceReader, query: TraceQuery | None) -> Callable[[RunCounts], float | None]:
    """Return what tells how much of a source is done: by time in a search, else by what is read."""
    if query is None:
        return lambda _: getattr(reader, "share_read", None)
    since_ns, length_ns = query.since_ns, query.until_ns - query.since_ns
    return lambda ledger: max(0, ledger.reached_ns - since_ns) / length_ns
