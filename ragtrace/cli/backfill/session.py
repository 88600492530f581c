"""What a run of `ragtrace backfill` is made of, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from ragtrace import process
from ragtrace.backfill import BackfillReport, DryRun, Progress, Selection
from ragtrace.budget import load_prices
from ragtrace.cli.backfill.batches import in_batches
from ragtrace.cli.backfill.budget import OVER_BUDGET, BackfillBudget
from ragtrace.cli.backfill.estimate import Planning, exit_code_of
from ragtrace.cli.backfill.options import CostOptions, JudgingOptions, OutputOptions, ReadOptions, is_file
from ragtrace.cli.backfill.output import answer_listener, print_report
from ragtrace.cli.backfill.progress_bar import ProgressBar
from ragtrace.cli.backfill.run import BackfillRun
from ragtrace.cli.evaluator_options import ChosenEvaluator
from ragtrace.cli.judge_choice import introduce, is_free, warn_of_old_prices
from ragtrace.cli.render import many, talk
from ragtrace.cli.report_files import Reports, ending_of, ending_of_pilot
from ragtrace.cli.script import INTERRUPTED
from ragtrace.cli.transcript_file import TranscriptFile
from ragtrace.conversations.settings import SessionSettings
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.pipeline.spec import EvaluatorSpec
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.attach import AttachOptions, CarrierTime
from ragtrace.traces.extract import ExtractRules


def run_backfill(read: ReadOptions, judging: JudgingOptions, cost: CostOptions, output: OutputOptions) -> int:
    """Run it, print what came of it, and return the exit code.

    Raises:
        UsageError: options do not go together.
        ConfigError: one of them is wrong.
    """
    planning = Planning.of(cost)
    transcript = click.get_current_context().with_resource(TranscriptFile(output.transcripts.path))
    budget = BackfillBudget.of(cost.budget)
    path = read.progress_path or Progress.default_path(
        source=read.source, destination=output.destination or ""
    )
    chosen = _chosen(judging, path)
    _check(read, cost, output)
    planning.check(source=read.source, destination=output.destination, dry_run=cost.dry_run)
    evaluator = transcript.recorded(_opened(chosen.spec, budget), chosen.spec.metrics)
    bar = ProgressBar(
        spent=lambda: budget.told(evaluator),
        waiting_for=lambda: budget.waiting_for,
        is_wanted=not output.json.wanted,
    )
    asks = not cost.dry_run and planning.asks(
        source=read.source, is_free=is_free(evaluator, chosen.spec.judge)
    )
    run = BackfillRun(
        source=read.source,
        destination=output.destination,
        access=read.access.access("source"),
        destination_access=output.access.access("to"),
        search=None if read.trace_ids or (is_file(read.source) and not read.search.is_made) else read.search,
        selection=_selection(read, chosen.rules),
        evaluator=evaluator,
        concurrency=judging.batch.concurrency,
        budget=budget,
        planning=planning,
        asks=asks,
        attach=_attach_options(chosen, output, read.source),
        sessions=_sessions(read, judging, chosen),
        bar=bar,
        progress_path=path,
        resume=read.resume,
    )
    reports = Reports.of(output.reports, source=read.source, evaluator=evaluator)
    report, preview = _carried_out(run, reports, transcript, output, dry_run=cost.dry_run)
    is_whole = reports.is_whole and transcript.is_whole and not run.faults.number
    print_report(report, preview, prices=evaluator.prices, dry_run=cost.dry_run, as_json=output.json.wanted)
    run.faults.tell_rest()
    if cost.dry_run and preview:
        return exit_code_of(preview) or int(not is_whole)
    return _exit_code(report, is_whole=is_whole)


def _chosen(judging: JudgingOptions, path: Path) -> ChosenEvaluator:
    chosen, batch = judging.chosen(), judging.batch
    if not batch.wanted:
        return chosen
    return replace(chosen, spec=in_batches(chosen.spec, path=path, poll_s=batch.poll_s))


def _opened(spec: EvaluatorSpec, budget: BackfillBudget) -> Evaluator:
    prices = load_prices(spec.prices)
    prices = prices if spec.judge.batches is None else prices.in_batches()
    around = budget.around(prices)
    evaluator = spec.open(around=lambda _role, _judge: around, prices=prices)
    introduce(evaluator.judge)
    warn_of_old_prices(prices, evaluator.judge.identity)
    return evaluator


def _attach_options(chosen: ChosenEvaluator, output: OutputOptions, source: str) -> AttachOptions:
    options = chosen.attach or AttachOptions()
    choice = options.carrier_time if output.carrier_time == "auto" else output.carrier_time
    return replace(
        options,
        carrier_time=_carrier_time(choice, source),
        openinference=output.writes_openinference,
    )


def _sessions(read: ReadOptions, judging: JudgingOptions, chosen: ChosenEvaluator) -> SessionSettings | None:
    """Return how sessions are judged; ``None`` if they are not.

    Raises:
        UsageError: they are wanted, and only some of their traces are read.
    """
    wanted = chosen.judges_sessions if judging.sessions is None else judging.sessions
    if not wanted:
        return None
    if read.trace_ids:
        if judging.sessions:
            raise click.UsageError("--sessions needs all traces of a session: leave out --trace-id")
        talk("sessions are not judged: --trace-id names single traces")
        return None
    plan = read.sampling or SamplingPlan()
    return chosen.sessions or SessionSettings(tenant=plan.tenant)


def _selection(read: ReadOptions, rules: ExtractRules | None) -> Selection:
    return Selection(
        trace_ids=read.trace_ids,
        sampling=_with_ratio(read.sampling, read.ratio),
        limit=read.limit,
        only_unscored=read.only_unscored,
        rules=read.extract.rules(rules),
    )


def _check(read: ReadOptions, cost: CostOptions, output: OutputOptions) -> None:
    if output.destination is None and not cost.dry_run:
        raise click.UsageError("--to ENDPOINT is missing: name where the verdicts go, or give --dry-run")
    if output.reports.paths and cost.dry_run and not cost.pilot:
        raise click.UsageError("--out writes judged answers, and --dry-run judges none without --pilot")
    if read.trace_ids and read.search.is_made:
        raise click.UsageError("--trace-id names the traces: leave out the options that search for them")


def _carried_out(
    run: BackfillRun, reports: Reports, transcript: TranscriptFile, output: OutputOptions, *, dry_run: bool
) -> tuple[BackfillReport, DryRun | None]:
    listeners = (transcript.keep, reports.add)
    with reports:
        if dry_run:
            preview = process.run(run.preview(answer_listener(listeners, run.evaluator.metrics, None)))
            reports.end(ending_of_pilot(preview))
            return preview.report, preview
        console = None if output.json.wanted else run.bar.console()
        report, estimated = process.run(
            run.carry_out(answer_listener(listeners, run.evaluator.metrics, console))
        )
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


def _with_ratio(plan: SamplingPlan | None, ratio: float | None) -> SamplingPlan:
    chosen = plan or SamplingPlan()
    return chosen if ratio is None else replace(chosen, ratio=ratio)


def _carrier_time(choice: str, source: str) -> CarrierTime:
    # verdicts most likely go back to the source: Jaeger warns if a carrier is later than its target, and only
    # Tempo fails to find one that is dated then
    is_tempo = is_file(source) or source.startswith("tempo:")
    return cast(CarrierTime, choice) if choice != "auto" or is_tempo else "target"
