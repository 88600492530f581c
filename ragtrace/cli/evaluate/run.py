"""One run of `ragtrace evaluate`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeAlias

import click

from ragtrace._ordered import map_in_order
from ragtrace.cli.evaluate.command import EvaluateJudging, EvaluateOutput
from ragtrace.cli.evaluate.options import ProfileOptions
from ragtrace.cli.judge_choice import JudgeChoice, introduce, report_usage
from ragtrace.cli.outcomes import OutcomeTable, tally_lines
from ragtrace.cli.record_files import LeftOutRows, in_background
from ragtrace.cli.render import many, open_console, print_line, talk
from ragtrace.cli.report_files import Reports
from ragtrace.cli.transcript_file import TranscriptFile
from ragtrace.errors import InputError
from ragtrace.evaluation import evaluate as evaluate_record
from ragtrace.judge import Prices
from ragtrace.metrics import StepLimits, metric_named
from ragtrace.metrics.calibration_file import Calibration, read_calibration
from ragtrace.model import Direction, Evaluation, MetricResult, RagRecord
from ragtrace.ports import Embedder, Judge, Metric, pass_condition
from ragtrace.records import read_records, to_json_line
from ragtrace.reports import JudgedAnswer
from ragtrace.reports.tally import MetricTally

Show: TypeAlias = Callable[[RagRecord, Evaluation], None]

_STDIN: Final = "-"


def evaluate_file(
    path: str, measure: ProfileOptions, judging: EvaluateJudging, output: EvaluateOutput
) -> int:
    """Judge the records, print the verdicts, and return the exit code.

    Raises:
        InputError: the file cannot be read.
        ConfigError: an option is wrong.
    """
    if path != _STDIN and not Path(path).is_file():
        raise InputError(f"{path!r} is not a file: name a file of JSON lines, or - for standard input")
    transcript = click.get_current_context().with_resource(TranscriptFile(output.transcripts.path))
    judge = judging.judge.choice()
    metrics = measure.metrics()
    measured = read_calibration(judging.calibration) if judging.calibration else None
    models = _open_models(judging, judge, transcript, measured)
    introduce(models.judge)
    if measured and not measure.passes.is_given:
        metrics = tuple(_passing_as(measured, metric) for metric in metrics)
    left_out = LeftOutRows()
    reports = Reports.of(
        output.reports,
        source=path,
        metrics=metrics,
        judges=(models.judge, models.second),
        prices=judge.prices,
    )
    show = _json_lines(judge.prices) if output.json.wanted else _table(metrics)
    counts = _Counts.of(metrics)

    def count_and_show(record: RagRecord, evaluation: Evaluation) -> None:
        counts.add(evaluation)
        answer = JudgedAnswer(record=record, evaluation=evaluation)
        transcript.keep(answer, models.limits)
        reports.add(answer)
        show(record, evaluation)

    with reports:
        records = partial(read_records, path, notices=left_out)
        concurrency = judging.concurrency.answers
        asyncio.run(_evaluate_all(records, metrics, models, concurrency, count_and_show))
        left_out.check_any(path, counts.records)
        reports.end(left_out.ending())
    if not output.json.wanted:
        _print_summary(counts)
    for asked in (models.judge, models.second):
        if asked is not None:
            report_usage(asked, judge.prices)
    is_whole = reports.is_whole and transcript.is_whole
    code = _exit_code(counts.tallies.values(), output.fail_under) or int(not is_whole)
    return left_out.exit_code() or code


@dataclass(slots=True, kw_only=True)
class _Counts:
    """What came of the records."""

    tallies: Mapping[tuple[str, str], MetricTally]
    """By name and profile of the metric."""
    records: int = 0
    calls: int = 0

    @classmethod
    def of(cls, metrics: Sequence[Metric]) -> Self:
        return cls(
            tallies={
                (metric.name, metric.profile): MetricTally(
                    metric=_named(metric), pass_when=pass_condition(metric)
                )
                for metric in metrics
            }
        )

    def add(self, evaluation: Evaluation) -> None:
        self.records += 1
        self.calls += evaluation.usage.calls
        for outcome in evaluation.outcomes:
            self.tallies[outcome.metric, outcome.profile].add(outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Models:
    """Who is asked."""

    judge: Judge
    second: Judge | None
    embedder: Embedder | None
    limits: StepLimits


def _open_models(
    judging: EvaluateJudging, judge: JudgeChoice, transcript: TranscriptFile, measured: Calibration | None
) -> _Models:
    at_once = judging.concurrency.answers
    opened = transcript.around(judge.open(max_concurrency=at_once))
    second = judge.open_second(judging.second.spec, max_concurrency=at_once)
    return _Models(
        judge=opened,
        second=transcript.around_second(second),
        embedder=judging.embedder.choice().open(judge),
        limits=judging.verify.limits(measured, opened.identity),
    )


def _passing_as(measured: Calibration, metric: Metric) -> Metric:
    """Let faithfulness pass at the threshold of a calibration."""
    is_faithfulness = (metric.name, metric.profile) == ("faithfulness", "ragtrace")
    if not is_faithfulness or measured.answer_threshold is None:
        return metric
    return metric_named(metric.name, threshold=measured.answer_threshold)


async def _evaluate_all(
    read: Callable[[], Iterable[RagRecord]],
    metrics: Sequence[Metric],
    models: _Models,
    concurrency: int,
    show: Show,
) -> None:
    async def work(record: RagRecord) -> tuple[RagRecord, Evaluation]:
        evaluation = await evaluate_record(
            record,
            metrics=metrics,
            judge=models.judge,
            second_judge=models.second,
            embedder=models.embedder,
            limits=models.limits,
        )
        return record, evaluation

    async def emit(pair: tuple[RagRecord, Evaluation]) -> None:
        show(*pair)

    async with AsyncExitStack() as opened:
        for model in (models.judge, models.second, models.embedder):
            if model is not None:
                await opened.enter_async_context(aclosing(model))
        records = await opened.enter_async_context(aclosing(in_background(read)))
        await map_in_order(records, work, emit, concurrency=concurrency)


def _json_lines(prices: Prices) -> Show:
    def show(record: RagRecord, evaluation: Evaluation) -> None:
        for outcome in evaluation.outcomes:
            second = outcome.judge if isinstance(outcome, MetricResult) else None
            judge = second or evaluation.judge
            cost = prices.cost_usd(outcome.usage, judge)
            print_line(to_json_line(outcome, record_id=record.id, judge=judge, cost_usd=cost))

    return show


def _table(metrics: Sequence[Metric]) -> Show:
    return OutcomeTable(open_console(), metrics=metrics).print_evaluation


def _print_summary(counts: _Counts) -> None:
    console = open_console()
    for tally in counts.tallies.values():
        console.print()
        for line in tally_lines(tally):
            console.print(line)
    if len(counts.tallies) > 1:
        console.print(f"\n{many(counts.calls, 'call')} to the judge in all: metrics share steps")


def _exit_code(tallies: Iterable[MetricTally], fail_under: float | None) -> int:
    for tally in tallies:
        if tally.errors:
            talk(f"failed: {tally.metric} has errors")
            return 1
        if fail_under is not None and not tally.reaches(fail_under):
            reached = "nothing was scored" if tally.mean is None else f"the mean is {tally.mean:.3f}"
            is_higher_better = tally.direction is Direction.HIGHER_IS_BETTER
            must = (
                f"must reach {fail_under:g}"
                if is_higher_better
                else f"must stay at {1 - fail_under:g} or below"
            )
            talk(f"failed: {tally.metric} {must}, and {reached}")
            return 1
    return 0


def _named(metric: Metric) -> str:
    return f"{metric.name} (profile {metric.profile})"
