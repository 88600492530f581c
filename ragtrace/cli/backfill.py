"""``ragtrace backfill``: judge the answers in stored traces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Final, TypeAlias, get_args

import click

from ragtrace import backfill as library
from ragtrace.backends import OtlpFileReader, open_reader, open_sink
from ragtrace.backfill import BackfillReport, Selection, SpanId
from ragtrace.cli.checks import EMPTY_EXPORT
from ragtrace.cli.options import (
    JudgeChoice,
    concurrency_option,
    introduce,
    json_option,
    judge_options,
    mapping_option,
    metric_options,
    sampling_option,
    second_judge_option,
)
from ragtrace.cli.outcomes import OutcomeTable
from ragtrace.cli.terminal import by_kind, open_console, print_json
from ragtrace.model import Evaluation, RagRecord
from ragtrace.ports import Judge, Metric, TraceReader
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.attach import AttachOptions, CarrierTime
from ragtrace.traces.extract import AttributeMapping

__all__ = ["backfill"]

_FILE: Final = "otlp-file:"

OnEvaluated: TypeAlias = Callable[[RagRecord, Evaluation], None]


@click.command()
@click.option(
    "--from",
    "source",
    required=True,
    metavar="SOURCE",
    help="otlp-file:PATH; jaeger:URL with --trace-id.",
)
@click.option("--to", "destination", metavar="ENDPOINT", help="OTLP endpoint, or otlp-file:PATH.")
@click.option(
    "--trace-id", "trace_ids", multiple=True, metavar="ID", help="Only this trace; may be repeated."
)
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1),
    metavar="R",
    help="Share of traces, chosen by trace id as the collector chooses.  [default: 1.0]",
)
@sampling_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Judge no more than N answers.")
@mapping_option
@metric_options
@judge_options
@second_judge_option
@concurrency_option
@click.option(
    "--carrier-time",
    type=click.Choice(get_args(CarrierTime)),
    default="auto",
    show_default=True,
    help="Date verdicts inside the answer's span (target: Jaeger) or now (Tempo, for old traces). auto: "
    "target for traces out of a Jaeger and answers of the last two minutes, else now.",
)
@click.option("--dry-run", is_flag=True, help="Ask no judge, send nothing: say what would be done.")
@json_option
def backfill(
    source: str,
    destination: str | None,
    trace_ids: tuple[str, ...],
    ratio: float | None,
    sampling: SamplingPlan | None,
    limit: int | None,
    mapping: AttributeMapping | None,
    metrics: tuple[Metric, ...],
    judge: JudgeChoice,
    second_judge: str | None,
    concurrency: int,
    carrier_time: CarrierTime,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Judge the answers in stored traces, and send the verdicts after them.

    Each verdict is a span of the answer's own trace, with the id the collector would give it. Left out are
    answers that the same evaluator has judged: their verdict stands in the source, or in a destination that
    is a file. Answers the judge failed on get no span: run it again to try them again.

    Exit code 0 if nothing failed, else 1.

    \b
    Examples:
      ragtrace backfill --from otlp-file:traces.jsonl --dry-run
      ragtrace backfill --from otlp-file:traces.jsonl \\
          --to http://localhost:4317 --judge openai:gpt-4o-mini
      ragtrace backfill --from jaeger:http://localhost:16686 \\
          --trace-id 5b8efff798038103d269b633813fc60c \\
          --to http://localhost:4317
    """
    if destination is None and not dry_run:
        raise click.UsageError("--to ENDPOINT is missing: where do the verdicts go? Or give --dry-run.")
    if not trace_ids and not source.startswith(_FILE):
        raise click.UsageError("a Jaeger cannot list its traces: name each with --trace-id")
    opened = judge.open(max_concurrency=concurrency)
    introduce(opened)
    run = _Run(
        source=source,
        destination=destination,
        selection=Selection(
            trace_ids=trace_ids, sampling=_with_ratio(sampling, ratio), limit=limit, mapping=mapping
        ),
        metrics=metrics,
        judge=opened,
        second_judge=judge.open_second(second_judge, max_concurrency=concurrency),
        concurrency=concurrency,
    )
    if dry_run:
        report = asyncio.run(run.rehearse())
    else:
        attach = AttachOptions(carrier_time=_carrier_time(carrier_time, source))
        report = asyncio.run(run.carry_out(attach, _printer(metrics, as_json=as_json)))
    _print_report(report, opened, dry_run=dry_run, as_json=as_json)
    click.get_current_context().exit(0 if report.is_clean else 1)


def _with_ratio(plan: SamplingPlan | None, ratio: float | None) -> SamplingPlan:
    chosen = plan or SamplingPlan()
    return chosen if ratio is None else replace(chosen, ratio=ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run: opens what it reads and writes, and closes it."""

    source: str
    destination: str | None
    selection: Selection
    metrics: tuple[Metric, ...]
    judge: Judge
    second_judge: Judge | None
    concurrency: int

    async def rehearse(self) -> BackfillReport:
        """Say what would be done."""
        async with self._opened() as (reader, selection):
            return await library.rehearse(
                reader,
                metrics=self.metrics,
                judge=self.judge,
                second_judge=self.second_judge,
                selection=selection,
                concurrency=self.concurrency,
            )

    async def carry_out(self, attach: AttachOptions, on_evaluated: OnEvaluated | None) -> BackfillReport:
        """Judge and send."""
        assert self.destination is not None
        async with self._opened() as (reader, selection), aclosing(open_sink(self.destination)) as sink:
            if not self.destination.startswith(_FILE):
                await sink.send(EMPTY_EXPORT)  # before money is spent: an address that is wrong fails here
            return await library.backfill(
                reader,
                sink,
                metrics=self.metrics,
                judge=self.judge,
                second_judge=self.second_judge,
                selection=selection,
                attach=attach,
                concurrency=self.concurrency,
                on_evaluated=on_evaluated,
            )

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[TraceReader, Selection]]:
        async with AsyncExitStack() as opened:
            for judge in (self.judge, self.second_judge):
                if judge is not None:
                    await opened.enter_async_context(aclosing(judge))
            reader = await opened.enter_async_context(aclosing(open_reader(self.source)))
            yield reader, replace(self.selection, done=await _done(self.destination))


async def _done(destination: str | None) -> frozenset[SpanId]:
    """Return the spans of a destination that can be read: a file."""
    path = (destination or "").removeprefix(_FILE)
    if path == destination or not await asyncio.to_thread(os.path.exists, path):
        return frozenset()
    return await library.span_ids(OtlpFileReader(path))


def _carrier_time(choice: CarrierTime, source: str) -> CarrierTime:
    # who reads from a Jaeger most likely writes to it: it draws a warning on a carrier later than its target
    return "target" if choice == "auto" and not source.startswith(_FILE) else choice


def _printer(metrics: tuple[Metric, ...], *, as_json: bool) -> OnEvaluated | None:
    if as_json:
        return None
    table = OutcomeTable(open_console(), metrics=metrics, id_title="trace", id_width=32)
    return table.print_evaluation


def _print_report(report: BackfillReport, judge: Judge, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": dry_run, **asdict(report)})
        return
    console = open_console()
    console.print()
    for line in _lines(report, judge, dry_run=dry_run):
        console.print(line)


def _lines(report: BackfillReport, judge: Judge, *, dry_run: bool) -> Iterator[str]:
    labels = f" ({', '.join(f'{label} {number}' for label, number in sorted(report.labels.items()))})"
    yield f"traces   {report.traces} read, {report.without_record} of them without a RAG call"
    if report.unreadable:
        yield f"         {by_kind(report.unreadable)} could not be read"
    if report.not_found:
        yield f"         not found: {', '.join(report.not_found)}"
    yield f"records  {report.records}, of these:"
    yield f"  judged             {report.judged}{labels if report.labels else ''}"
    yield f"  skipped            {by_kind(report.skipped)}"
    yield f"  failed             {by_kind(report.failed)}"
    yield f"  sampled out        {report.sampled_out}"
    yield f"  already evaluated  {report.already_evaluated}"
    usage = report.usage
    if not dry_run:
        yield f"sent     {report.sent}, rejected {by_kind(report.rejected)}"
        yield f"calls    {usage.calls}, tokens {usage.input_tokens} in, {usage.output_tokens} out"
        return
    yield "dry run: nothing was judged or sent; `judged` are those that would be"
    if judge.identity.provider == "lexical":
        yield "calls    none: the lexical judge computes"
        return
    yield f"calls    about {usage.calls}, tokens about {usage.input_tokens} in, {usage.output_tokens} out:"
    yield "         if each sentence is one claim, a token is four characters, and no call fails"
