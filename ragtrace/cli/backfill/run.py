"""One run of a back-fill: what it reads, asks and writes is opened, and closed."""

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

from ragtrace import _standard_input
from ragtrace import backfill as library
from ragtrace.backends import OtlpFileReader, open_carrier_sink, open_reader
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backfill import BackfillReport, DryRun, Progress, ResumableRun, Selection, SpanId
from ragtrace.cli.backfill.batches import finish_batches, waits_for_batches
from ragtrace.cli.backfill.budget import BackfillBudget
from ragtrace.cli.backfill.estimate import Planning, agree
from ragtrace.cli.backfill.not_found import report_not_found
from ragtrace.cli.backfill.options import SearchOptions, is_file
from ragtrace.cli.backfill.output import OnEvaluated, if_kept
from ragtrace.cli.backfill.progress_bar import ProgressBar, share_of
from ragtrace.cli.backfill.unreadable import UnreadableParts
from ragtrace.cli.doctor.checks import EMPTY_EXPORT
from ragtrace.cli.render import talk, utc
from ragtrace.conversations.settings import SessionSettings
from ragtrace.files.private import refuse_link
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import SpanSink, TraceQuery, TraceReader
from ragtrace.traces.attach import AttachOptions

_FILE: Final = "otlp-file:"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRun:
    """One run: opens what it reads and writes, and closes it."""

    source: str
    destination: str | None
    access: ConnectionSettings
    destination_access: ConnectionSettings
    search: SearchOptions | None
    selection: Selection
    evaluator: Evaluator
    concurrency: int
    budget: BackfillBudget
    planning: Planning
    asks: bool
    """Somebody must agree before anything is spent."""
    attach: AttachOptions
    sessions: SessionSettings | None
    bar: ProgressBar
    progress_path: Path
    resume: bool
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
                pilot=self.planning.pilot,
                on_evaluated=on_evaluated,
                run=run,
                sessions=self.sessions,
            )

    async def carry_out(self, on_evaluated: OnEvaluated) -> tuple[BackfillReport, DryRun | None]:
        """Judge and send until it is done or Ctrl-C stops it; first show the estimate if it is wanted."""
        assert self.destination is not None
        async with self._opened() as (reader, selection, run), aclosing(self._sink()) as sink:
            # before money is spent: an address that is wrong fails here
            if is_file(self.destination):
                refuse_link(Path(self.destination.removeprefix(_FILE)))
            else:
                await sink.send(EMPTY_EXPORT)
            if not self.resume:
                since_ns, until_ns = _stretch(selection.query)
                run.progress.begin(run.name, since_ns=since_ns, until_ns=until_ns)
            preview = None
            if self.asks or self.planning.pilot:
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
            finish_batches(self.evaluator.judges, report)
            if selection.query is None and not report.is_behind:
                await run.progress.reached(run.name, _stretch(None)[1])
            return report, preview

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[TraceReader, Selection, ResumableRun]]:
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(aclosing(self.evaluator))
            progress = opened.enter_context(Progress(self.progress_path))
            leaves = waits_for_batches(self.evaluator.judge)
            run = ResumableRun(
                progress=progress, name=self._name(), leaves_waiting=leaves, watch=self.bar.watch
            )
            run = await opened.enter_async_context(self.budget.opened(run))
            reader = await opened.enter_async_context(aclosing(self._reader(run)))
            done = await _done(self.destination)
            yield reader, replace(self.selection, done=done, query=self._query(run)), run

    def _sink(self) -> SpanSink:
        assert self.destination is not None
        return open_carrier_sink(self.destination, access=self.destination_access)

    def _reader(self, run: ResumableRun) -> TraceReader:
        return open_reader(self.source, access=self.access, on_fault=self.faults.tell, sleep=run.pause)

    def _query(self, run: ResumableRun) -> TraceQuery | None:
        unfinished = run.progress.unfinished(run.name)
        if self.resume and unfinished is None:
            raise click.UsageError("there is no stopped run of this search: leave out --resume")
        if self.search is None:
            return None
        query = self.search.query(time.time_ns())
        if unfinished is None:
            return query
        _, until_ns, reached_ns = unfinished
        if self.resume:
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
        search = self.search
        if search is None:
            return ()
        typed = (str(search.since), str(search.until), str(search.min_age))
        return (search.service, search.operation, search.tags, search.traceql, *typed)


def _stretch(query: TraceQuery | None) -> tuple[int, int]:
    """Return the time that is searched; what is not searched has only a beginning and an end."""
    return (query.since_ns, query.until_ns) if query is not None else (0, 1)


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
