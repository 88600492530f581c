"""One run of `ragtrace evaluate`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeAlias

import click

from ragtrace import process
from ragtrace._ordered import map_in_order
from ragtrace.backends import OtlpFileReader, holds_traces
from ragtrace.budget import Prices
from ragtrace.cli.evaluate import EvaluateJudging, EvaluateOutput, MeasureOptions
from ragtrace.cli.judge_choice import introduce, report_usage
from ragtrace.cli.outcomes import OutcomeTable, tally_lines
from ragtrace.cli.record_files import LeftOutRows, in_background
from ragtrace.cli.render import many, open_console, print_line, talk
from ragtrace.cli.report_files import Reports, TranscriptFile
from ragtrace.errors import InputError
from ragtrace.model import Direction, Evaluation, JudgedAnswer, MetricResult, RagRecord
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Metric, pass_condition
from ragtrace.records import read_records, to_json_line
from ragtrace.reports.report import MetricTally
from ragtrace.traces.extract import ExtractRules, extract_records

Show: TypeAlias = Callable[[RagRecord, Evaluation], None]

_STDIN: Final = "-"


def evaluate_file(
    path: str, measure: MeasureOptions, judging: EvaluateJudging, output: EvaluateOutput
) -> int:
    """Judge the records, print the verdicts, and return the exit code.

    Raises:
        InputError: the file cannot be read.
        ConfigError: an option is wrong.
    """
    if path != _STDIN and not Path(path).is_file():
        raise InputError(f"{path!r} is not a file: name a file of JSON lines, or - for standard input")
    transcript = click.get_current_context().with_resource(TranscriptFile(output.reports.transcripts))
    at_once = judging.concurrency.answers
    only = ("judge", "evaluate", "extract", "ui")
    chosen = judging.judge.evaluator(measure.metrics, max_concurrency=at_once, only=only)
    evaluator = transcript.recorded(chosen.spec.open(), chosen.spec.metrics)
    introduce(evaluator.judge)
    left_out = LeftOutRows()
    reports = Reports.of(output.reports, source=path, evaluator=evaluator, links=chosen.config.ui.links)
    show = _json_lines(evaluator.prices) if output.json.wanted else _table(evaluator.metrics)
    counts = _Counts.of(evaluator.metrics)

    def count_and_show(record: RagRecord, evaluation: Evaluation) -> None:
        counts.add(evaluation)
        answer = JudgedAnswer(record=record, evaluation=evaluation)
        transcript.keep(answer)
        reports.add(answer)
        show(record, evaluation)

    with reports:
        process.run(
            _evaluate_all(
                _records(path, chosen.config.extract.opened(), left_out), evaluator, at_once, count_and_show
            )
        )
        left_out.check_any(path, counts.records)
        reports.end(left_out.ending())
    if not output.json.wanted:
        _print_summary(counts)
    for judge in evaluator.judges:
        report_usage(judge, evaluator.prices)
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


def _records(path: str, rules: ExtractRules, left_out: LeftOutRows) -> AsyncGenerator[RagRecord, None]:
    """Return the records of a file, or those in its traces."""
    if path != _STDIN and holds_traces(path):
        return _records_in_traces(path, OtlpFileReader(path, on_fault=left_out.row_refused), rules)
    return in_background(partial(read_records, path, notices=left_out))


async def _records_in_traces(
    path: str, reader: OtlpFileReader, rules: ExtractRules
) -> AsyncGenerator[RagRecord, None]:
    """Yield the RAG calls of a file of traces.

    Raises:
        InputError: it has none.
    """
    number = 0
    async with aclosing(reader):
        async for trace in reader.traces():
            for record in extract_records(trace, rules).records:
                number += 1
                yield record
    if not number:
        raise InputError(
            f"{path} holds traces, and no RAG call: `ragtrace explain {path}` says what is in them"
        )


async def _evaluate_all(
    found: AsyncGenerator[RagRecord, None], evaluator: Evaluator, concurrency: int, show: Show
) -> None:
    async def work(record: RagRecord) -> tuple[RagRecord, Evaluation]:
        return record, await evaluator.evaluate(record)

    async def emit(pair: tuple[RagRecord, Evaluation]) -> None:
        show(*pair)

    async with AsyncExitStack() as opened:
        await opened.enter_async_context(aclosing(evaluator))
        records = await opened.enter_async_context(aclosing(found))
        await map_in_order(records, work, emit, concurrency=concurrency)


def _json_lines(prices: Prices) -> Show:
    def show(record: RagRecord, evaluation: Evaluation) -> None:
        cost = {"cost_usd": prices.cost_of(evaluation)}  # in the first line alone: metrics share calls
        for outcome in evaluation.outcomes:
            second = outcome.judge if isinstance(outcome, MetricResult) else None
            judge = second or evaluation.judge
            print_line(to_json_line(outcome, record_id=record.id, judge=judge, further=cost))
            cost = {}

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
            reached = "nothing was scored" if tally.mean is None else f"the mean is {tally.mean:.6g}"
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
