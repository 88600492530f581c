"""One run of `ragtrace rejudge`, and two evaluators side by side on the terminal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from ragtrace import process
from ragtrace.backends.sinks import open_carrier_sink, reads_openinference
from ragtrace.budget import Prices, load_prices
from ragtrace.cli.evaluator_options import ChosenEvaluator
from ragtrace.cli.judge_choice import introduce, is_free, report_usage
from ragtrace.cli.options import OWN_PROFILE, access
from ragtrace.cli.rejudge import KeptOptions, RejudgeOutput, RescoreOptions
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json, talk
from ragtrace.clock import SystemClock
from ragtrace.judge.spec import JudgeSpec
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Metric, SpanSink
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.otlp import encode
from ragtrace.transcripts import (
    Comparer,
    Disagreement,
    EvaluatorComparison,
    EvaluatorInfo,
    MetricComparison,
    RescoredRecord,
    TranscriptRecord,
    Transcripts,
    ask_again,
    compare,
    rescore,
    unpaid,
)


class _Named(NamedTuple):
    """An evaluator of a file."""

    path: Path
    evaluator: str | None


def _named(value: str) -> _Named:
    path, _, evaluator = value.partition("#")
    return _Named(Path(path), evaluator or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    prices: Prices
    as_json: bool

    def tell(self, comparison: EvaluatorComparison, first: Side, second: Side, **more: int) -> None:
        """Print a comparison, and the numbers that go with it."""
        if self.as_json:
            print_comparison_as_json(comparison, first, second, self.prices, **more)
            return
        print_comparison(comparison, first, second, self.prices)
        for what, number in more.items():
            talk(f"{what.replace('_', ' ')}: {number}")


def run_rejudge(kept: KeptOptions, scoring: RescoreOptions, output: RejudgeOutput) -> int:
    """Score or judge again, or compare; return the exit code.

    Raises:
        UsageError: options do not go together.
        ConfigError: one of them is wrong, or a file is.
    """
    if kept.diff is not None:
        first, second = map(_named, kept.diff)
        config = scoring.judge.config.read(only=("judge",))
        _diff(first, second, _Output(prices=load_prices(config.judge.prices), as_json=output.json.wanted))
        return 0
    assert kept.source is not None
    if output.destination and scoring.judge.names_judge:
        raise click.UsageError("--to sends rescored verdicts: run backfill to send those of another judge")
    path, name = _named(kept.source)
    with Transcripts(path, must_exist=True) as transcripts:
        evaluator = transcripts.evaluator(name)
        at_once, only = scoring.concurrency.answers, ("judge", "evaluate", "attach")
        chosen = scoring.judge.evaluator(
            lambda: _metrics(evaluator, scoring), max_concurrency=at_once, only=only
        )
        shown = _Output(prices=load_prices(chosen.spec.prices), as_json=output.json.wanted)
        again = _Again(
            transcripts=transcripts,
            evaluator=evaluator,
            kept=lambda: islice(transcripts.of(evaluator), kept.limit),
            metrics=tuple(each.open() for each in chosen.spec.metrics) if _names_metrics(scoring) else None,
            output=shown,
        )
        if scoring.judge.names_judge:
            asking = again.ask(chosen.spec.judge, at_once, is_agreed=scoring.is_agreed)
            return int(not process.run(asking))
        return int(not process.run(again.score(_Sending(output=output, attach=_attach(chosen, output)))))


def _names_metrics(scoring: RescoreOptions) -> bool:
    passes, config = scoring.passes, scoring.judge.config
    rules = (passes.names, passes.threshold, passes.pass_when, scoring.profile.tool)
    given = (*rules, config.path, scoring.metric_options or None)
    return any(one is not None for one in given) or any(
        key.startswith("evaluate.") for key, _ in config.changes
    )


def _metrics(evaluator: EvaluatorInfo, scoring: RescoreOptions) -> list[dict[str, Any]]:
    """Return the metrics that options name, by default those that ran, under the rules that were used."""
    passes, tool = scoring.passes, scoring.profile.tool
    options = {"options": dict(scoring.metric_options)} if scoring.metric_options else {}
    if passes.names is None:
        ran = [each.rpartition("/")[::2] for each in evaluator.evaluator_set.split(",")]
        return [
            {**given, "name": name, "profile": tool or profile, **options}
            for name, profile in ran
            for given in passes.metrics()
        ]
    return [{**given, **options} for given in passes.metrics(tool or OWN_PROFILE)]


def _attach(chosen: ChosenEvaluator, output: RejudgeOutput) -> AttachOptions:
    from ragtrace_collector.judge.live import attach_options_of

    to = output.destination
    return replace(attach_options_of(chosen.config), openinference=to is not None and reads_openinference(to))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """The answers of an evaluator, judged or scored again."""

    transcripts: Transcripts
    evaluator: EvaluatorInfo
    kept: Callable[[], Iterator[TranscriptRecord]]
    metrics: tuple[Metric, ...] | None
    output: _Output

    async def score(self, sending: _Sending) -> bool:
        """Score what the judge said, and say whether all of it was known."""
        comparing, unknown, sent = Comparer(), 0, 0
        async with sending.opened() as send:
            async for each in rescore(self.kept(), self.transcripts, metrics=self.metrics):
                comparing.add_pair(each.before, unpaid(each.after))
                unknown += each.asks_anew
                sent += await send(each, self.transcripts)
        first = _side(self.transcripts, self.evaluator)
        second = replace(first, name="the same, scored again", is_rescored=True)
        self.output.tell(comparing.comparison(), first, second, not_in_transcript=unknown, sent=sent)
        return not unknown

    async def ask(self, spec: JudgeSpec, concurrency: int, *, is_agreed: bool) -> bool:
        """Ask another judge about the same records, and say whether it answered."""
        prices = self.output.prices
        evaluator = Evaluator(metrics=self.metrics or (), judge=spec.open(), prices=prices)
        judge = evaluator.judge
        introduce(judge)
        if not (is_agreed or is_free(evaluator, spec)):
            self._agree(judge.identity)
        comparing, failed = Comparer(), 0

        def count(before: TranscriptRecord, after: TranscriptRecord) -> None:
            nonlocal failed
            comparing.add_pair(before, after)
            failed += bool(after.evaluation.failures)

        async with aclosing(evaluator):
            await ask_again(
                self.kept(),
                self.transcripts,
                judge,
                metrics=self.metrics,
                on_judged=count,
                concurrency=concurrency,
            )
        first = _side(self.transcripts, self.evaluator)
        second = Side(name=judge.identity.name, judge=judge.identity)
        self.output.tell(comparing.comparison(), first, second, failed=failed)
        report_usage(judge, prices)
        return self.transcripts.is_whole and not failed

    def _agree(self, judge: JudgeIdentity) -> None:
        spent = [each.evaluation.usage for each in self.kept()]
        usage, price = sum(spent, Usage()), self.output.prices.price_of(judge)
        cost = f"about ${price.cost_usd(usage):.2f}" if price and usage.input_tokens else "an unknown sum"
        answers = many(len(spent), "answer")
        told = f"asking {judge.model} about {answers} costs {cost}, if its replies are as long"
        if not sys.stdin.isatty():
            raise click.UsageError(f"{told}: --yes spends it")
        click.confirm(f"{told}: continue?", default=False, abort=True, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sending:
    """Where new verdicts go, if anywhere."""

    output: RejudgeOutput
    attach: AttachOptions

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Callable[[RescoredRecord, Transcripts], Awaitable[bool]]]:
        """Open the destination, and give what sends a verdict there and says whether it was new."""
        if self.output.destination is None:
            yield _nowhere
            return
        to = access(self.output.headers.headers)
        async with aclosing(open_carrier_sink(self.output.destination, access=to)) as sink:
            yield partial(self._send, sink)

    async def _send(self, sink: SpanSink, each: RescoredRecord, transcripts: Transcripts) -> bool:
        evaluation = each.after.evaluation
        known = transcripts.find(each.after.record.id, evaluation.evaluator_set, evaluation.evaluator_version)
        if known or not (each.is_whole and evaluation.results) or each.after.record.target is None:
            return False
        span = each.carrier(self.attach, now_ns=SystemClock().now_ns())
        if span is None:
            return False
        await sink.send(encode([span]))
        transcripts.keep(unpaid(each.after))
        return True


async def _nowhere(_: RescoredRecord, __: Transcripts) -> bool:
    return False


def _diff(first: _Named, second: _Named, output: _Output) -> None:
    with ExitStack() as opened:
        one, other = (
            opened.enter_context(Transcripts(each.path, must_exist=True)) for each in (first, second)
        )
        a, b = one.evaluator(first.evaluator), other.evaluator(second.evaluator)
        output.tell(compare(one.of(a), other.of(b)), _side(one, a), _side(other, b))


def _side(transcripts: Transcripts, evaluator: EvaluatorInfo) -> Side:
    judge = next(transcripts.of(evaluator)).evaluation.judge
    return Side(name=f"{transcripts.path.name}#{evaluator.name}", judge=judge)


_OWN: Final = "ragtrace"
_SHOWN: Final = 10
"""Answers that differ most; JSON has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two."""

    name: str
    judge: JudgeIdentity
    is_rescored: bool = False
    """Its verdicts are those of the other, scored again."""


def print_comparison(comparison: EvaluatorComparison, first: Side, second: Side, prices: Prices) -> None:
    """Print what two evaluators make of the same answers, and where they are farthest apart."""
    console = open_console()
    for letter, side, usage in zip("AB", (first, second), comparison.usage, strict=True):
        console.print(f"{letter}  {one_line(side.name)}", soft_wrap=True)
        console.print(f"   {_effort(side, usage, prices)}", soft_wrap=True)
    console.print(f"\n{_answers(comparison)}")
    for metric in comparison.metrics:
        console.print()
        for line in _lines(metric):
            console.print(line)
    if comparison.disagreements:
        shown = comparison.disagreements[:_SHOWN]
        console.print(f"\ndifferent verdicts: {len(comparison.disagreements)}{_how_many(shown, comparison)}")
    for each in comparison.disagreements[:_SHOWN]:
        console.print(f"  {one_line(each.record_id)}", soft_wrap=True)
        console.print(f"    {each.metric}  {_both(each)}", soft_wrap=True)
        for claim in each.claims:
            print_indented(console, 6, f"{claim.first} | {claim.second}: {one_line(claim.text)}")


def print_comparison_as_json(
    comparison: EvaluatorComparison, first: Side, second: Side, prices: Prices, **more: object
) -> None:
    """Print the same as one JSON object."""
    told = asdict(comparison)
    told["disagreeing"] = len(comparison.disagreements)
    for name, side, usage in zip(("a", "b"), (first, second), comparison.usage, strict=True):
        told[name] = {"name": side.name, "cost_usd": _cost(side, usage, prices)}
    print_json({**told, **more})


def _answers(comparison: EvaluatorComparison) -> str:
    parts = [f"{many(comparison.both, 'answer')} of both"]
    if comparison.only_first:
        parts.append(f"{comparison.only_first} of A only")
    if comparison.only_second:
        parts.append(f"{comparison.only_second} of B only")
    if comparison.other_material:
        parts.append(f"{comparison.other_material} of which they were shown different texts")
    return ", ".join(parts)


def _lines(metric: MetricComparison) -> Iterator[str]:
    yield f"{_name(metric):<34}{'A':>7}{'B':>8}{'B - A':>9}   95 % interval"
    found = metric.difference
    if found is None:
        yield "  no answer has a score of both"
    else:
        means = f"{found.first:7.3f}{found.second:8.3f}{found.mean:+9.3f}"
        yield f"{f'  mean of {found.pairs}':<34}{means}   {found.low:+.3f} to {found.high:+.3f}"
        if found.left_out:
            yield f"  {found.left_out} more have no known probability and are in no mean"
    yield f"  passes with A only {metric.passes_first_only}, with B only {metric.passes_second_only}" + (
        f" (McNemar p = {metric.p_value:.2g})" if metric.passes_first_only + metric.passes_second_only else ""
    )
    kappa = "-" if metric.kappa is None else f"{metric.kappa:.2f}"
    yield f"  agreement of labels beyond chance (kappa) {kappa}"
    yield (
        f"  scored by A only {metric.scored_first_only}, by B only {metric.scored_second_only},"
        f" by neither {metric.scored_by_neither}"
    )


def _name(metric: MetricComparison) -> str:
    first, second = metric.profiles
    if first == second:
        return metric.metric if first == _OWN else f"{metric.metric}.{first}"
    return f"{metric.metric} ({first}, {second})"


def _both(each: Disagreement) -> str:
    first, second = ("-" if score is None else f"{score:.2f}" for score in (each.first, each.second))
    return f"{first} {each.labels[0]} | {second} {each.labels[1]}"


def _how_many(shown: tuple[Disagreement, ...], comparison: EvaluatorComparison) -> str:
    if len(shown) == len(comparison.disagreements):
        return ""
    return f"; the {len(shown)} that differ most:" if shown else ""


def _effort(side: Side, usage: Usage, prices: Prices) -> str:
    if side.is_rescored:
        return "no call was made"
    cost = _cost(side, usage, prices)
    dollars = "cost unknown" if cost is None else f"${cost:.4f}"
    tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
    return f"{many(usage.calls, 'call')}, {tokens}, {dollars}"


def _cost(side: Side, usage: Usage, prices: Prices) -> float | None:
    return 0.0 if side.is_rescored else prices.cost_usd(usage, side.judge)
