"""``ragtrace evaluate``: judge records of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import click
from click.core import ParameterSource

from ragtrace._ordered import map_in_order
from ragtrace.cli.asking import Asking, asking_options
from ragtrace.cli.options import (
    JudgeChoice,
    account_for,
    calibration_option,
    concurrency_option,
    introduce,
    json_option,
    judge_options,
    second_judge_option,
)
from ragtrace.cli.outcomes import OutcomeTable, tally_lines
from ragtrace.cli.profiles import EmbedderChoice, embedder_option, profile_options
from ragtrace.cli.reading import LeftOutRows, in_background
from ragtrace.cli.reporting import ReportChoice, report_options
from ragtrace.cli.terminal import many, open_console, print_line, talk
from ragtrace.cli.transcribing import Transcribing, transcripts_option
from ragtrace.errors import InputError
from ragtrace.evaluation import evaluate as evaluate_record
from ragtrace.judge import Prices
from ragtrace.metrics import StepLimits, metric_named
from ragtrace.metrics.calibration_file import Calibration, read_calibration
from ragtrace.model import Direction, Evaluation, MetricResult, RagRecord
from ragtrace.ports import Embedder, Judge, Metric, passes_when
from ragtrace.records import read_records, to_json_line
from ragtrace.reports import JudgedAnswer
from ragtrace.reports.tally import MetricTally

Show: TypeAlias = Callable[[RagRecord, Evaluation], None]

_STDIN: Final = "-"


@click.command()
@click.argument("path", metavar="RECORDS")
@profile_options
@judge_options
@second_judge_option
@calibration_option
@embedder_option
@concurrency_option
@asking_options
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 1),
    metavar="SCORE",
    help="Exit code 1 if the mean score of a metric is below this (above 1 - SCORE where lower is better),"
    " or nothing was scored.",
)
@report_options
@transcripts_option
@json_option
def evaluate(
    path: str,
    metrics: tuple[Metric, ...],
    judge: JudgeChoice,
    second_judge: str | None,
    calibration: str | None,
    embedder: EmbedderChoice,
    concurrency: int,
    asking: Asking,
    fail_under: float | None,
    wanted: ReportChoice,
    transcribing: Transcribing,
    as_json: bool,
) -> None:
    """Judge the records of a JSON-lines file; - is standard input.

    A record is {"id", "question", "contexts": [text or {"id", "text"}], "answer"}; contexts may be one text.
    The field names of RAGAS and DeepEval are understood, and so is one JSON array of records. With --json:
    one line a record and metric, in the order of the file, as soon as it is there.

    With --profile, scores follow another tool's rules, and the lines add compat_status (ok, nan, error,
    grader_error) and compat_score (the tool's raw number).

    A row that is no record is left out, with a line on stderr that says which and why; the others are
    judged.

    Exit code 0 if every record was judged or had nothing to judge, 1 if the judge failed on one, 2 if the
    file or a row of it cannot be read.

    \b
    Examples:
      ragtrace evaluate records.jsonl
      ragtrace evaluate records.jsonl --judge openai:gpt-4o-mini --json
      ragtrace evaluate records.jsonl --judge openai:qwen2.5 \\
          --base-url http://localhost:11434/v1
      ragtrace evaluate records.jsonl --judge openai:gpt-4o-mini \\
          --profile deepeval-4 --peer-prompts
      jq -c .record log.jsonl | ragtrace evaluate - --fail-under 0.8
    """
    if path != _STDIN and not Path(path).is_file():
        raise InputError(f"{path!r} is no file: name a file of JSON lines, or - for standard input")
    measured = read_calibration(calibration) if calibration else None
    opened = transcribing.around(judge.open(max_concurrency=concurrency))
    models = _Models(
        judge=opened,
        second=transcribing.around_second(judge.open_second(second_judge, max_concurrency=concurrency)),
        embedder=embedder.open(judge),
        limits=asking.limits(measured, opened.identity),
    )
    introduce(opened)
    if measured:
        metrics = tuple(_passing_as(measured, metric) for metric in metrics)
    calls = read = 0
    left_out = LeftOutRows()
    tallies = {
        (metric.name, metric.profile): MetricTally(metric=_named(metric), pass_when=passes_when(metric))
        for metric in metrics
    }
    show = _json_lines(judge.prices) if as_json else _table(metrics)

    def count_and_show(record: RagRecord, evaluation: Evaluation) -> None:
        nonlocal calls, read
        read += 1
        calls += evaluation.usage.calls
        for outcome in evaluation.outcomes:
            tallies[outcome.metric, outcome.profile].add(outcome)
        answer = JudgedAnswer(record=record, evaluation=evaluation)
        transcribing.keep(answer, models.limits)
        reports.add(answer)
        show(record, evaluation)

    reports = wanted.reports(
        source=path, metrics=metrics, judge=models.judge, second_judge=models.second, prices=judge.prices
    )
    with reports:
        records = partial(read_records, path, notices=left_out)
        asyncio.run(_evaluate_all(records, metrics, models, concurrency, count_and_show))
        left_out.check_any(path, read)
        reports.end(left_out.ending())
    if not as_json:
        _print_summary(tallies.values(), calls)
    for asked in (models.judge, models.second):
        if asked is not None:
            account_for(asked, judge.prices)
    is_whole = reports.is_whole and transcribing.is_whole
    code = _exit_code(tallies.values(), fail_under) or int(not is_whole)
    click.get_current_context().exit(left_out.exit_code() or code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Models:
    """Who is asked."""

    judge: Judge
    second: Judge | None
    embedder: Embedder | None
    limits: StepLimits


def _passing_as(measured: Calibration, metric: Metric) -> Metric:
    """Let faithfulness pass where a calibration says, unless the command line says when it passes."""
    context = click.get_current_context()
    sources = map(context.get_parameter_source, ("threshold", "pass_when"))
    is_faithfulness = (metric.name, metric.profile) == ("faithfulness", "ragtrace")
    if ParameterSource.COMMANDLINE in sources or not is_faithfulness or measured.answer_threshold is None:
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


def _print_summary(tallies: Collection[MetricTally], calls: int) -> None:
    console = open_console()
    for tally in tallies:
        console.print()
        for line in tally_lines(tally):
            console.print(line)
    if len(tallies) > 1:
        console.print(f"\n{many(calls, 'call')} to the judge in all: metrics share steps")


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


def _goal(tally: MetricTally, fail_under: float) -> str:
    if tally.direction is Direction.HIGHER_IS_BETTER:
        return f"reach {fail_under:g}"
    return f"stay at {1 - fail_under:g} or below"


def _named(metric: Metric) -> str:
    return f"{metric.name} (profile {metric.profile})"
