"""What a run of `ragtrace backfill` is made of, and how it ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import click

from ragtrace.backfill import BackfillReport, DryRun, Progress, Selection
from ragtrace.cli.backfill.batches import in_batches
from ragtrace.cli.backfill.budget import OVER_BUDGET, BackfillBudget
from ragtrace.cli.backfill.estimate import Planning, exit_code_of
from ragtrace.cli.backfill.options import CostOptions, JudgingOptions, OutputOptions, ReadOptions, is_file
from ragtrace.cli.backfill.output import answer_listener, print_report
from ragtrace.cli.backfill.progress_bar import ProgressBar
from ragtrace.cli.backfill.run import BackfillRun
from ragtrace.cli.judge_choice import JudgeChoice, introduce, is_free, warn_of_old_prices
from ragtrace.cli.render import many, talk
from ragtrace.cli.report_files import Reports, ending_of, ending_of_pilot
from ragtrace.cli.script import INTERRUPTED
from ragtrace.cli.transcript_file import TranscriptFile
from ragtrace.ports import Judge, Metric
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.attach import AttachOptions, CarrierTime


def run_backfill(
    read: ReadOptions, evaluator: JudgingOptions, cost: CostOptions, output: OutputOptions
) -> int:
    """Run it, print what came of it, and return the exit code.

    Raises:
        UsageError: options do not go together.
        ConfigError: one of them is wrong.
    """
    planning = Planning.of(cost)
    transcript = click.get_current_context().with_resource(TranscriptFile(output.transcripts.path))
    models = _Models.of(read, evaluator, BackfillBudget.of(cost.budget), output)
    metrics = evaluator.metrics.metrics()
    _check(read, cost, output)
    planning.check(source=read.source, destination=output.destination, dry_run=cost.dry_run)
    opened = models.opened(transcript, evaluator)
    bar = ProgressBar(
        spent=lambda: models.budget.told(opened, models.choice.prices),
        waiting_for=lambda: models.budget.waiting_for,
        is_wanted=not output.json.wanted,
    )
    run = _run(read, cost, output, models=models, judges=opened, metrics=metrics, bar=bar)
    reports = Reports.of(
        output.reports, source=read.source, metrics=metrics, judges=opened, prices=models.choice.prices
    )
    report, preview = _carried_out(run, reports, transcript, output, dry_run=cost.dry_run)
    is_whole = reports.is_whole and transcript.is_whole and not run.faults.number
    print_report(
        report, preview, prices=models.choice.prices, dry_run=cost.dry_run, as_json=output.json.wanted
    )
    run.faults.tell_rest()
    if cost.dry_run and preview:
        return exit_code_of(preview) or int(not is_whole)
    return _exit_code(report, is_whole=is_whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Models:
    """The judges that options name, and what they may spend."""

    choice: JudgeChoice
    budget: BackfillBudget
    progress_path: Path
    concurrency: int

    @classmethod
    def of(
        cls, read: ReadOptions, evaluator: JudgingOptions, budget: BackfillBudget, output: OutputOptions
    ) -> _Models:
        choice, batch = evaluator.judge.choice(), evaluator.batch
        path = read.progress_path or Progress.default_path(
            source=read.source, destination=output.destination or ""
        )
        if batch.wanted:
            choice = in_batches(choice, evaluator.second.spec, path=path, poll_s=batch.poll_s)
        return cls(choice=choice, budget=budget, progress_path=path, concurrency=batch.concurrency)

    def opened(self, transcript: TranscriptFile, evaluator: JudgingOptions) -> tuple[Judge, Judge | None]:
        """Open the judge and the second judge."""
        around, at_once = self.budget.around(self.choice.prices), self.concurrency
        judge = transcript.around(self.choice.open(max_concurrency=at_once, around=around))
        introduce(judge)
        warn_of_old_prices(self.choice.prices, judge.identity)
        second = self.choice.open_second(evaluator.second.spec, max_concurrency=at_once, around=around)
        return judge, transcript.around_second(second)


def _check(read: ReadOptions, cost: CostOptions, output: OutputOptions) -> None:
    if output.destination is None and not cost.dry_run:
        raise click.UsageError("--to ENDPOINT is missing: name where the verdicts go, or give --dry-run")
    if output.reports.paths and cost.dry_run and not cost.pilot:
        raise click.UsageError("--out writes judged answers, and --dry-run judges none without --pilot")
    if read.trace_ids and read.search.is_made:
        raise click.UsageError("--trace-id names the traces: leave out the options that search for them")


def _run(
    read: ReadOptions,
    cost: CostOptions,
    output: OutputOptions,
    *,
    models: _Models,
    judges: tuple[Judge, Judge | None],
    metrics: tuple[Metric, ...],
    bar: ProgressBar,
) -> BackfillRun:
    planning = Planning.of(cost)
    asks = not cost.dry_run and planning.asks(source=read.source, is_free=is_free(models.choice, judges))
    return BackfillRun(
        source=read.source,
        destination=output.destination,
        access=read.access.access("source"),
        destination_access=output.access.access("to"),
        search=None if read.trace_ids or (is_file(read.source) and not read.search.is_made) else read.search,
        selection=Selection(
            trace_ids=read.trace_ids,
            sampling=_with_ratio(read.sampling, read.ratio),
            limit=read.limit,
            only_unscored=read.only_unscored,
            rules=read.extract.rules(),
        ),
        metrics=metrics,
        judge=judges[0],
        second_judge=judges[1],
        concurrency=models.concurrency,
        budget=models.budget,
        planning=planning,
        asks=asks,
        prices=models.choice.prices,
        attach=AttachOptions(carrier_time=_carrier_time(output.carrier_time, read.source)),
        bar=bar,
        progress_path=models.progress_path,
        resume=read.resume,
    )


def _carried_out(
    run: BackfillRun, reports: Reports, transcript: TranscriptFile, output: OutputOptions, *, dry_run: bool
) -> tuple[BackfillReport, DryRun | None]:
    listeners = (transcript.keep, reports.add)
    with reports:
        if dry_run:
            preview = asyncio.run(run.preview(answer_listener(listeners, run.metrics, None)))
            reports.end(ending_of_pilot(preview))
            return preview.report, preview
        console = None if output.json.wanted else run.bar.console()
        report, estimated = asyncio.run(run.carry_out(answer_listener(listeners, run.metrics, console)))
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
        talk(
            f"nothing more was judged: {report.over_budget}. {many(report.left, 'answer')} left:"
            " raise the limit, and run the same command with --resume"
        )
        return OVER_BUDGET
    return int(not (report.is_clean and is_whole))


def _with_ratio(plan: SamplingPlan | None, ratio: float | None) -> SamplingPlan:
    chosen = plan or SamplingPlan()
    return chosen if ratio is None else replace(chosen, ratio=ratio)


def _carrier_time(choice: str, source: str) -> CarrierTime:
    # verdicts most likely go back to the source: Jaeger warns if a carrier is later than its target, and only
    # Tempo fails to find one that is dated then
    is_tempo = is_file(source) or source.startswith("tempo:")
    return cast(CarrierTime, choice) if choice != "auto" or is_tempo else "target"
