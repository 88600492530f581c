"""One run of `ragtrace rejudge`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from ragtrace import process
from ragtrace.backends.opening import open_carrier_sink, reads_openinference
from ragtrace.budget import Prices, load_prices
from ragtrace.cli.compare_run import print_comparison
from ragtrace.cli.evaluator_options import ChosenEvaluator
from ragtrace.cli.judge_choice import introduce, is_free, report_usage
from ragtrace.cli.options import OWN_PROFILE, access
from ragtrace.cli.rejudge import KeptOptions, RejudgeOutput, RescoreOptions
from ragtrace.cli.render import many, print_json, talk
from ragtrace.clock import SystemClock
from ragtrace.judge.spec import JudgeSpec
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Metric, SpanSink
from ragtrace.quality.compared import comparison_as_json
from ragtrace.quality.comparing import ComparedAnswer, ComparedSide, compare
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.otlp import encode
from ragtrace.transcripts import (
    EvaluatorInfo,
    RescoredRecord,
    TranscriptRecord,
    Transcripts,
    ask_again,
    rescore,
    unpaid,
)


@dataclass(slots=True, kw_only=True)
class _Side:
    """One of the two, with what it took."""

    name: str
    judge: JudgeIdentity
    makes_calls: bool = True
    """Whether its verdicts are not those of the other, scored again."""
    answers: list[ComparedAnswer] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def add(self, kept: TranscriptRecord) -> None:
        self.answers.append(ComparedAnswer.of_judged(kept))
        self.usage += kept.evaluation.usage

    def cost(self, prices: Prices) -> float | None:
        return prices.cost_usd(self.usage, self.judge) if self.makes_calls else 0.0

    def effort(self, prices: Prices) -> str:
        if not self.makes_calls:
            return "no call was made"
        cost, usage = self.cost(prices), self.usage
        dollars = "cost unknown" if cost is None else f"${cost:.4f}"
        tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
        return f"{many(usage.calls, 'call')}, {tokens}, {dollars}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    prices: Prices
    as_json: bool

    def tell(self, first: _Side, second: _Side, **more: int) -> None:
        """Print a comparison, and the numbers that go with it."""
        sides = (ComparedSide(name=each.name, answers=each.answers) for each in (first, second))
        found = compare(*sides)
        if self.as_json:
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
        evaluator = transcripts.evaluator(name or None)
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
    from ragtrace_collector.judge import attach_options_of

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
        first, unknown, sent = self._first(), 0, 0
        second = replace(first, name="the same, scored again", makes_calls=False, answers=[])
        async with sending.opened() as send:
            async for each in rescore(self.kept(), self.transcripts, metrics=self.metrics):
                first.add(each.before)
                second.add(unpaid(each.after))
                unknown += each.asks_anew
                sent += await send(each, self.transcripts)
        self.output.tell(first, second, not_in_transcript=unknown, sent=sent)
        return not unknown

    async def ask(self, spec: JudgeSpec, concurrency: int, *, is_agreed: bool) -> bool:
        """Ask another judge about the same records, and say whether it answered."""
        prices = self.output.prices
        evaluator = Evaluator(metrics=self.metrics or (), judge=spec.open(), prices=prices)
        judge = evaluator.judge
        introduce(judge)
        if not (is_agreed or is_free(evaluator, spec)):
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
                concurrency=concurrency,
            )
        self.output.tell(first, second, failed=failed)
        report_usage(judge, prices)
        return self.transcripts.is_whole and not failed

    def _first(self) -> _Side:
        judge = next(self.transcripts.of(self.evaluator)).evaluation.judge
        return _Side(name=f"{self.transcripts.path.name}#{self.evaluator.name}", judge=judge)

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
