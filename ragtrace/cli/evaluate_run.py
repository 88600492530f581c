"""One run of `ragtrace evaluate` or of `ragtrace rejudge`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from ragtrace import process
from ragtrace.backends import OtlpFileReader, holds_traces
from ragtrace.backends.opening import open_carrier_sink, reads_openinference
from ragtrace.budget import Prices, load_prices
from ragtrace.cli.evaluate import (
    EvaluateJudging,
    EvaluateOutput,
    KeptOptions,
    MeasureOptions,
    RejudgeOutput,
    RescoreOptions,
)
from ragtrace.cli.judging import (
    LeftOutRows,
    Reports,
    in_background,
    introduce,
    is_free,
    report_usage,
)
from ragtrace.cli.options import OWN_PROFILE, ChosenEvaluator, access
from ragtrace.cli.outcomes import OutcomeTable, tally_lines
from ragtrace.cli.render import many, open_console, print_json, print_line, talk
from ragtrace.cli.report_run import print_comparison
from ragtrace.errors import InputError
from ragtrace.model import Direction, Evaluation, JudgedAnswer, JudgeIdentity, MetricResult, RagRecord, Usage
from ragtrace.pipeline import Evaluator, MetricSpec, map_in_order
from ragtrace.ports import SpanSink, pass_condition
from ragtrace.process import SystemClock
from ragtrace.quality.compared import comparison_as_json
from ragtrace.quality.comparing import ComparedAnswer, ComparedSide, compare
from ragtrace.records import read_records, to_json_line
from ragtrace.reports.report import MetricTally
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.otlp import encode
from ragtrace.transcripts import (
    EvaluatorInfo,
    RescoredRecord,
    TranscriptRecord,
    Transcripts,
    ask_again,
    rescore,
    specs_of,
    unpaid,
)

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
    at_once = judging.concurrency
    only = ("judge", "evaluate", "extract", "ui")
    chosen = judging.judge.evaluator(measure.metrics, max_concurrency=at_once, only=only)
    evaluator = chosen.spec.open()
    introduce(evaluator.judge)
    left_out = LeftOutRows()
    reports = Reports.of(output.reports, source=path, evaluator=evaluator, links=chosen.config.ui.links)
    evaluator = reports.recorded(evaluator, chosen.spec.metrics)
    show: Callable[[RagRecord, Evaluation], None] = partial(_print_json_lines, evaluator.prices)
    if not output.json.wanted:
        show = OutcomeTable(open_console(), metrics=evaluator.metrics).print_evaluation
    tallies = {
        (metric.name, metric.profile): MetricTally(
            metric=f"{metric.name} (profile {metric.profile})", pass_when=pass_condition(metric)
        )
        for metric in evaluator.metrics
    }
    found = _records(path, chosen.config.extract.opened(), left_out)
    number = calls = 0

    async def evaluate_all() -> None:
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(aclosing(evaluator))
            records = await opened.enter_async_context(aclosing(found))
            await map_in_order(records, work, emit, concurrency=at_once)

    async def work(record: RagRecord) -> JudgedAnswer:
        return JudgedAnswer(record=record, evaluation=await evaluator.evaluate(record))

    async def emit(answer: JudgedAnswer) -> None:
        nonlocal number, calls
        number += 1
        calls += answer.evaluation.usage.calls
        for outcome in answer.evaluation.outcomes:
            tallies[outcome.metric, outcome.profile].add(outcome)
        reports.add(answer)
        show(answer.record, answer.evaluation)

    with reports:
        process.run(evaluate_all())
        left_out.check_any(path, number)
        reports.end(left_out.ending())
    if not output.json.wanted:
        _print_summary(tallies.values(), calls)
    report_usage(evaluator.judges, evaluator.prices)
    code = _exit_code(tallies.values(), output.fail_under) or int(not reports.is_whole)
    return left_out.exit_code() or code


def _records(path: str, rules: ExtractRules, left_out: LeftOutRows) -> AsyncGenerator[RagRecord, None]:
    """Return the records of a file, or those in its traces."""
    if path != _STDIN and holds_traces(path):
        return _records_in_traces(path, rules, left_out)
    return in_background(read_records(path, notices=left_out))


async def _records_in_traces(
    path: str, rules: ExtractRules, left_out: LeftOutRows
) -> AsyncGenerator[RagRecord, None]:
    """Yield the RAG calls of a file of traces.

    Raises:
        InputError: it has none.
    """
    number = 0
    async with aclosing(OtlpFileReader(path, on_fault=left_out.row_refused)) as reader:
        async for trace in reader.traces():
            for record in extract_records(trace, rules).records:
                number += 1
                yield record
    if not number:
        raise InputError(
            f"{path} holds traces, and no RAG call: `ragtrace explain {path}` says what is in them"
        )


def _print_json_lines(prices: Prices, record: RagRecord, evaluation: Evaluation) -> None:
    cost = {"cost_usd": prices.cost_of(evaluation)}  # in the first line alone: metrics share calls
    for outcome in evaluation.outcomes:
        second = outcome.judge if isinstance(outcome, MetricResult) else None
        judge = second or evaluation.judge
        print_line(to_json_line(outcome, record_id=record.id, judge=judge, further=cost))
        cost = {}


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
            reached = "nothing was scored" if tally.mean is None else f"the mean is {tally.mean:.6g}"
            must = f"must reach {fail_under:g}"
            if tally.direction is Direction.LOWER_IS_BETTER:
                must = f"must stay at {1 - fail_under:g} or below"
            talk(f"failed: {tally.metric} {must}, and {reached}")
            return 1
    return 0


@dataclass(slots=True, kw_only=True)
class _Side:
    """One of the two, with what it took."""

    name: str
    judge: JudgeIdentity
    answers: list[ComparedAnswer] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def add(self, kept: TranscriptRecord) -> None:
        self.answers.append(ComparedAnswer.of_judged(kept))
        self.usage += kept.evaluation.usage

    def cost(self, prices: Prices) -> float | None:
        return prices.cost_usd(self.usage, self.judge) if self.usage.calls else 0.0

    def effort(self, prices: Prices) -> str:
        cost, usage = self.cost(prices), self.usage
        dollars = "cost unknown" if cost is None else f"${cost:.4f}"
        tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
        return f"{many(usage.calls, 'call')}, {tokens}, {dollars}"


def run_rejudge(kept: KeptOptions, scoring: RescoreOptions, output: RejudgeOutput) -> int:
    """Score or judge again, and return the exit code.

    Raises:
        UsageError: options do not go together.
        ConfigError: one of them is wrong, or a file is.
    """
    if output.destination and scoring.judge.names_judge:
        raise click.UsageError("--to sends rescored verdicts: run backfill to send those of another judge")
    path, _, name = kept.source.partition("#")
    with Transcripts(Path(path), must_exist=True) as transcripts:
        info = transcripts.evaluator(name or None)
        chosen = scoring.judge.evaluator(
            lambda: _metrics(next(transcripts.of(info)), scoring),
            max_concurrency=scoring.concurrency,
            only=("judge", "evaluate", "attach"),
        )
        again = _Again(
            transcripts=transcripts,
            evaluator=info,
            kept=lambda: islice(transcripts.of(info), kept.limit),
            metrics=chosen.spec.metrics if _names_metrics(scoring) else None,
            chosen=chosen,
            prices=load_prices(chosen.spec.prices),
            scoring=scoring,
            output=output,
        )
        return int(not process.run(again.ask() if scoring.judge.names_judge else again.score()))


def _names_metrics(scoring: RescoreOptions) -> bool:
    passes, config = scoring.passes, scoring.judge.config
    rules = (passes.names, passes.threshold, passes.pass_when, scoring.profile)
    return any(one is not None for one in (*rules, config.path)) or any(
        key.startswith("evaluate.") for key, _ in config.changes
    )


def _metrics(kept: TranscriptRecord, scoring: RescoreOptions) -> list[dict[str, Any]]:
    """Return the metrics that options name, by default those that ran, under the rules that were used."""
    passes, tool, ran = scoring.passes, scoring.profile, specs_of(kept)
    if passes.names is not None:
        chosen = passes.metrics(tool or OWN_PROFILE)
    else:
        chosen = [
            {**given, "name": each.name, "profile": tool or each.profile}
            for each in ran
            for given in passes.metrics()
        ]
    criteria = {
        each.name: {"criterion": each.options["criterion"]} for each in ran if "criterion" in each.options
    }
    return [{**each, **criteria.get(each["name"], {})} for each in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """The answers of an evaluator, judged or scored again."""

    transcripts: Transcripts
    evaluator: EvaluatorInfo
    kept: Callable[[], Iterator[TranscriptRecord]]
    metrics: tuple[MetricSpec, ...] | None
    chosen: ChosenEvaluator
    prices: Prices
    scoring: RescoreOptions
    output: RejudgeOutput

    async def score(self) -> bool:
        """Score what the judge said, send new verdicts if that is wanted, and say whether all was known."""
        from ragtrace_collector.judge import attach_options_of

        first, unknown, sent, to = self._first(), 0, 0, self.output.destination
        second = replace(first, name="the same, scored again", answers=[])
        attach = replace(
            attach_options_of(self.chosen.config), openinference=to is not None and reads_openinference(to)
        )
        async with AsyncExitStack() as opened:
            sink: SpanSink | None = None
            if to is not None:
                sink = open_carrier_sink(to, access=access(self.output.headers))
                await opened.enter_async_context(aclosing(sink))
            async for each in rescore(self.kept(), self.transcripts, metrics=self.metrics):
                first.add(each.before)
                second.add(unpaid(each.after))
                unknown += each.asks_anew
                sent += sink is not None and await self._send(sink, each, attach)
        self._tell(first, second, not_in_transcript=unknown, sent=sent)
        return not unknown

    async def _send(self, sink: SpanSink, each: RescoredRecord, attach: AttachOptions) -> bool:
        """Send a verdict, and say whether it was new."""
        record, evaluation = each.after.record, each.after.evaluation
        known = self.transcripts.find(record.id, evaluation.evaluator_set, evaluation.evaluator_version)
        if known or not (each.is_whole and evaluation.results) or record.target is None:
            return False
        span = each.carrier(attach, now_ns=SystemClock().now_ns())
        if span is None:
            return False
        await sink.send(encode([span]))
        self.transcripts.keep(unpaid(each.after))
        return True

    async def ask(self) -> bool:
        """Ask another judge about the same records, and say whether it answered."""
        spec = self.chosen.spec.judge
        metrics = [each.open() for each in self.metrics or specs_of(next(self.kept()))]
        evaluator = Evaluator(metrics=metrics, judge=spec.open(), prices=self.prices)
        judge = evaluator.judge
        introduce(judge)
        if not (self.scoring.is_agreed or is_free(evaluator, spec)):
            self._agree(judge.identity)
        first, failed = self._first(), 0
        second = _Side(name=judge.identity.name, judge=judge.identity)

        def count(before: TranscriptRecord, after: TranscriptRecord) -> None:
            nonlocal failed
            first.add(before)
            second.add(after)
            failed += bool(after.evaluation.failures)

        async with aclosing(evaluator):
            await ask_again(
                self.kept(),
                self.transcripts,
                judge,
                metrics=self.metrics,
                on_judged=count,
                concurrency=self.scoring.concurrency,
            )
        self._tell(first, second, failed=failed)
        report_usage([judge], self.prices)
        return self.transcripts.is_whole and not failed

    def _first(self) -> _Side:
        judge = next(self.transcripts.of(self.evaluator)).evaluation.judge
        return _Side(name=f"{self.transcripts.path.name}#{self.evaluator.name}", judge=judge)

    def _agree(self, judge: JudgeIdentity) -> None:
        spent = [each.evaluation.usage for each in self.kept()]
        usage, price = sum(spent, Usage()), self.prices.price_of(judge)
        cost = f"about ${price.cost_usd(usage):.2f}" if price and usage.input_tokens else "an unknown sum"
        answers = many(len(spent), "answer")
        told = f"asking {judge.model} about {answers} costs {cost}, if its replies are as long"
        if not sys.stdin.isatty():
            raise click.UsageError(f"{told}: --yes spends it")
        click.confirm(f"{told}: continue?", default=False, abort=True, err=True)

    def _tell(self, first: _Side, second: _Side, **more: int) -> None:
        """Print a comparison, and the numbers that go with it."""
        sides = (ComparedSide(name=each.name, answers=each.answers) for each in (first, second))
        found = compare(*sides)
        if self.output.json.wanted:
            told = comparison_as_json(found)
            for name, side in (("a", first), ("b", second)):
                told[name] |= {"usage": asdict(side.usage), "cost_usd": side.cost(self.prices)}
            print_json({**told, **more})
            return
        print_comparison(found)
        for letter, side in (("A", first), ("B", second)):
            talk(f"{letter}: {side.effort(self.prices)}")
        for what, number in more.items():
            talk(f"{what.replace('_', ' ')}: {number}")
