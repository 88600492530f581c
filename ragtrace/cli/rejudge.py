"""``ragtrace rejudge``: score kept verdicts again without a call, or compare two evaluators."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import click

from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.sinks import open_carrier_sink
from ragtrace.cli.comparison import Side, print_comparison, print_comparison_as_json
from ragtrace.cli.estimate import is_free
from ragtrace.cli.options import (
    JudgeChoice,
    account_for,
    concurrency_option,
    introduce,
    json_option,
    judge_options,
    make_metric,
    pass_when_option,
    passing,
    split_names,
    threshold_option,
)
from ragtrace.cli.sources import destination_access_options
from ragtrace.cli.terminal import many, talk
from ragtrace.clock import SystemClock
from ragtrace.compat.tools import PROFILES
from ragtrace.model import Usage
from ragtrace.ports import Judge, Metric, SpanSink
from ragtrace.traces.attach import AttachOptions, CarrierTime, deserves_carrier
from ragtrace.traces.otlp import encode
from ragtrace.transcripts import (
    Comparer,
    EvaluatorComparison,
    EvaluatorInfo,
    RescoredRecord,
    TranscriptRecord,
    Transcripts,
    ask_again,
    compare,
    rescore,
    unpaid,
)

_OWN: Final = "ragtrace"


class _Named(NamedTuple):
    """An evaluator of a file."""

    path: Path
    evaluator: str | None


def _named(value: str) -> _Named:
    path, _, evaluator = value.partition("#")
    return _Named(Path(path), evaluator or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    judge: JudgeChoice
    show: int
    as_json: bool

    def tell(self, comparison: EvaluatorComparison, first: Side, second: Side, **more: int) -> None:
        """Print a comparison, and the numbers that go with it."""
        if self.as_json:
            print_comparison_as_json(comparison, first, second, self.judge.prices, show=self.show, **more)
            return
        print_comparison(comparison, first, second, self.judge.prices, show=self.show)
        for what, number in more.items():
            talk(f"{what.replace('_', ' ')}: {number}")


@click.command()
@click.option(
    "--transcripts",
    "source",
    metavar="FILE[#NAME]",
    help="What --transcripts of other commands wrote; the name of an evaluator, where it holds several.",
)
@click.option("--diff", nargs=2, metavar="A B", help="Two such files, or evaluators of one: FILE#NAME.")
@click.option("--metrics", "names", metavar="NAMES", help="Separated by commas.  [default: those that ran]")
@threshold_option
@pass_when_option
@click.option(
    "--profile",
    type=click.Choice((_OWN, *PROFILES)),
    metavar="TOOL",
    help=f"Whose rules turn verdicts into scores: {', '.join((_OWN, *PROFILES))}.  [default: those that did]",
)
@click.option("--to", "destination", metavar="ENDPOINT", help="Send the new verdicts into the traces.")
@destination_access_options
@click.option(
    "--carrier-time",
    type=click.Choice(get_args(CarrierTime)),
    default="auto",
    show_default=True,
    help="Date verdicts inside the answer's span (target: Jaeger) or now (Tempo, for old traces). auto: "
    "target for answers of the last two minutes, else now.",
)
@judge_options
@concurrency_option
@click.option("--yes", "-y", "is_agreed", is_flag=True, help="Spend on --judge without asking.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take the first N answers only.")
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="List the N answers that are farthest apart.",
)
@json_option
def rejudge(
    source: str | None,
    diff: tuple[str, str] | None,
    names: str | None,
    threshold: float | None,
    pass_when: str | None,
    profile: str | None,
    destination: str | None,
    destination_access: ConnectionSettings,
    carrier_time: CarrierTime,
    judge: JudgeChoice,
    concurrency: int,
    is_agreed: bool,
    limit: int | None,
    show: int,
    as_json: bool,
) -> None:
    """Score kept verdicts again without a call, or compare two evaluators on the same answers.

    With --transcripts: records are evaluated again out of what the judge said of them, with another
    rule of a pass, another tool's rules, or newer checks of evidence. Nobody is asked; answers about which
    something new would have to be asked are counted. --to sends the new verdicts, which name the ones whose
    place they take.

    With --transcripts and --judge: that judge is asked about the same records. What it says is kept in the
    same file, and compared.

    With --diff: two evaluators that have judged the same answers.

    Exit code 0 if every answer was scored, else 1.

    \b
    Examples:
      ragtrace rejudge --transcripts judged.db --threshold 0.8
      ragtrace rejudge --transcripts judged.db --profile deepeval-4 \\
          --to http://localhost:4317
      ragtrace rejudge --transcripts judged.db --judge openai:gpt-4.1
      ragtrace rejudge --diff judged.db#gpt-4o-mini judged.db#gpt-4.1
    """
    if (source is None) == (diff is None):
        raise click.UsageError("give --transcripts FILE, or --diff A B")
    output = _Output(judge=judge, show=show, as_json=as_json)
    if diff is not None:
        if limit is not None:
            raise click.UsageError("--limit is for --transcripts: --diff compares all that both judged")
        first, second = map(_named, diff)
        _diff(first, second, output)
        return
    assert source is not None
    if destination and judge.spec:
        raise click.UsageError("--to sends what is scored again: verdicts of another judge come by backfill")
    path, name = _named(source)
    with Transcripts(path, must_exist=True) as transcripts:
        evaluator = transcripts.evaluator(name)
        again = _Again(
            transcripts=transcripts,
            evaluator=evaluator,
            kept=lambda: islice(transcripts.of(evaluator), limit),
            metrics=_metrics(evaluator, names, profile=profile, passes=passing(threshold, pass_when)),
            output=output,
        )
        if judge.spec:
            is_whole = asyncio.run(again.ask(judge, concurrency, is_agreed=is_agreed))
        else:
            sending = _Sending(
                destination=destination,
                access=destination_access,
                options=AttachOptions(carrier_time=carrier_time),
            )
            is_whole = asyncio.run(again.score(sending))
    click.get_current_context().exit(int(not is_whole))


def _metrics(
    evaluator: EvaluatorInfo, names: str | None, *, profile: str | None, passes: Mapping[str, Any]
) -> tuple[Metric, ...] | None:
    """Make the metrics that options name; ``None`` for those that ran, as they ran."""
    if names is None and profile is None and not passes:
        return None
    ran = [each.rpartition("/")[::2] for each in evaluator.evaluator_set.split(",")]
    wanted = [(name, profile or _OWN) for name in split_names(names)] if names else ran
    return tuple(make_metric(name, profile=profile or ran_under, **passes) for name, ran_under in wanted)


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

    async def ask(self, choice: JudgeChoice, concurrency: int, *, is_agreed: bool) -> bool:
        """Ask another judge about the same records, and say whether it answered."""
        opened = choice.open(max_concurrency=concurrency)
        introduce(opened)
        if not (is_agreed or is_free(choice, (opened,))):
            self._agree(opened, choice)
        comparing, failed = Comparer(), 0

        def count(before: TranscriptRecord, after: TranscriptRecord) -> None:
            nonlocal failed
            comparing.add_pair(before, after)
            failed += bool(after.evaluation.failures)

        async with aclosing(opened):
            await ask_again(
                self.kept(),
                self.transcripts,
                opened,
                metrics=self.metrics,
                on_judged=count,
                concurrency=concurrency,
            )
        first = _side(self.transcripts, self.evaluator)
        second = Side(name=f"{opened.identity.provider}:{opened.identity.model}", judge=opened.identity)
        self.output.tell(comparing.comparison(), first, second, failed=failed)
        account_for(opened, choice.prices)
        return self.transcripts.is_whole and not failed

    def _agree(self, judge: Judge, choice: JudgeChoice) -> None:
        spent = [each.evaluation.usage for each in self.kept()]
        usage, price = sum(spent, Usage()), choice.prices.price_of(judge.identity)
        cost = f"about ${price.cost_usd(usage):.2f}" if price and usage.input_tokens else "an unknown sum"
        answers = many(len(spent), "answer")
        told = f"asking {judge.identity.model} about {answers} costs {cost}, if it is as wordy"
        if not sys.stdin.isatty():
            raise click.UsageError(f"{told}: --yes spends it")
        click.confirm(f"{told}: go on?", default=False, abort=True, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sending:
    """Where new verdicts go, if anywhere."""

    destination: str | None
    access: ConnectionSettings
    options: AttachOptions

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Callable[[RescoredRecord, Transcripts], Awaitable[bool]]]:
        """Open the destination, and give what sends a verdict there and says whether it was new."""
        if self.destination is None:
            yield _nowhere
            return
        async with aclosing(open_carrier_sink(self.destination, access=self.access)) as sink:
            yield partial(self._send, sink)

    async def _send(self, sink: SpanSink, each: RescoredRecord, transcripts: Transcripts) -> bool:
        evaluation = each.after.evaluation
        known = transcripts.find(each.after.record.id, evaluation.evaluator_set, evaluation.evaluator_version)
        is_told = each.is_whole and evaluation.results and deserves_carrier(evaluation)
        if known or not is_told or each.after.record.target is None:
            return False
        await sink.send(encode([each.carrier(self.options, now_ns=SystemClock().now_ns())]))
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
