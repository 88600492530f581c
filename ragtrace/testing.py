"""Test support: assertions about answers, and conformance suites for plug-ins."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pydantic import BaseModel
from rich.console import Console

from ragtrace.cli.outcomes import OutcomeTable
from ragtrace.errors import JudgeUnavailable
from ragtrace.frames import evaluate_sync, wait_for
from ragtrace.judge.scripted import Script, ScriptedJudge
from ragtrace.metrics import Faithfulness, metric_named
from ragtrace.metrics.registry import make_metric
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    Evaluation,
    JudgeIdentity,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
)
from ragtrace.pipeline import evaluate
from ragtrace.ports import Embedder, Judge, JudgeReply, JudgeRequest, Metric

__all__ = [
    "Script",
    "ScriptedJudge",
    "assert_metrics",
    "check_embedder",
    "check_judge",
    "check_metric",
]


_WIDTH: Final = 100


def assert_metrics(
    record: RagRecord,
    *,
    judge: Judge | str,
    metrics: Sequence[Metric | str] = (),
    allow_skipped: bool = False,
    embedder: Embedder | str | None = None,
    second_judge: Judge | str | None = None,
    **thresholds: float,
) -> Evaluation:
    """Assert that an answer reaches the threshold of each metric, and return the evaluation.

    Name metrics by keyword with their threshold (``faithfulness=0.8``), or pass them in ``metrics`` with
    their own threshold. The assertion also fails if the judge fails or a metric had nothing to judge (unless
    ``allow_skipped``): a gate that measured nothing must not pass.

    Example:
        ```python
        assert_metrics(record, judge="openai:gpt-4o-mini", faithfulness=0.8, context_precision=0.5)
        ```

    Raises:
        AssertionError: names the metrics that failed, their scores, and the claims and chunks at fault.
        ConfigError: there is no metric or judge of that name, or a setting of the judge is missing.
    """
    __tracebackhide__ = True  # pytest: show the test, not this function
    named = [metric_named(name, threshold=threshold) for name, threshold in thresholds.items()]
    if not (metrics or named):
        raise TypeError("no metric is named: write faithfulness=0.8, for example")
    chosen = [metric_named(metric) if isinstance(metric, str) else metric for metric in metrics]
    chosen += named
    evaluation = evaluate_sync(
        record, metrics=chosen, judge=judge, embedder=embedder, second_judge=second_judge
    )
    bad = [outcome for outcome in evaluation.outcomes if not _is_good(outcome, allow_skipped)]
    if bad:
        lines = io.StringIO()
        console = Console(file=lines, width=_WIDTH, color_system=None)
        failed = ", ".join(outcome.metric for outcome in bad)
        said = f"record {record.id} fails {failed} (judge {evaluation.judge.name})"
        console.print(said, markup=False, highlight=False)
        OutcomeTable(console, metrics=chosen).print_evaluation(record, evaluation)
        if any(outcome.label is Label.SKIPPED for outcome in bad):
            console.print("allow_skipped=True lets pass what was skipped")
        raise AssertionError("\n".join(line.rstrip() for line in lines.getvalue().splitlines()))
    return evaluation


def _is_good(outcome: MetricOutcome, allow_skipped: bool) -> bool:
    return outcome.label is Label.PASS or (allow_skipped and outcome.label is Label.SKIPPED)


ReplyT = TypeVar("ReplyT", bound=BaseModel)

_WHOLE: Final = RagRecord.of(
    question="How long can I return an order?",
    contexts={"faq-12": "Orders can be returned within 14 days.", "faq-3": "The shop is open on Sundays."},
    answer="Orders can be returned within 30 days. The shop is open on Sundays.",
    reference="Within 14 days.",
)
_DAMAGED: Final = (
    RagRecord.of(),
    RagRecord.of(question="", contexts=[""], answer="", reference=""),
    RagRecord.of(question="?", contexts=["- \n -"], answer="...", reference="!"),
    RagRecord.of(question="q" * 5_000, contexts=["word " * 2_000], answer="a. " * 500, reference="r"),
)


def check_metric(
    metric: Metric,
    *,
    judge: Judge,
    embedder: Embedder | None = None,
    records: Sequence[RagRecord] = (),
) -> None:
    """Check that a metric returns scores in [0, 1] or reasons, reproducibly, for any record.

    ``judge`` must answer the metric's requests, for example a `ScriptedJudge` with a function. ``records``
    are measured in addition to the built-in ones.

    Raises:
        AssertionError: the metric broke the contract; the message says how.
    """
    make_metric(lambda: metric, named=type(metric).__name__)
    wait_for(_check_metric(_Bench(metric, judge, embedder), (_WHOLE, *_DAMAGED, *records)))


def check_judge(judge: Judge) -> None:
    """Check that a judge identifies itself and answers in the requested form, with concurrent requests.

    The requests are those of faithfulness. `ragtrace calibrate` measures whether it judges well.

    Raises:
        AssertionError: the judge broke the contract; the message says how.
        JudgeError: it did not answer.
    """
    _check_identity(judge.identity)
    wait_for(_check_judge(judge))


def check_embedder(embedder: Embedder) -> None:
    """Check that an embedder returns a vector of finite numbers per text, of equal lengths, in order.

    Raises:
        AssertionError: the embedder broke the contract; the message says how.
        JudgeError: it did not answer.
    """
    _check_identity(embedder.identity)
    wait_for(_check_embedder(embedder))


@dataclass(frozen=True, slots=True)
class _Bench:
    metric: Metric
    judge: Judge
    embedder: Embedder | None

    async def measure(self, record: RagRecord) -> MetricOutcome:
        evaluation = await evaluate(record, metrics=[self.metric], judge=self.judge, embedder=self.embedder)
        return evaluation.outcomes[0]


async def _check_metric(bench: _Bench, records: Sequence[RagRecord]) -> None:
    name = bench.metric.name
    async with asyncio.TaskGroup() as group:
        runs = [[group.create_task(bench.measure(record)) for record in records] for _ in range(2)]
    for record, first, second in zip(records, *runs, strict=True):
        _check_outcome(first.result(), record)
        assert first.result() == second.result(), (
            f"{name} gives another result if it measures the same record {record.id} again"
        )
    empty = runs[0][1].result()
    assert empty.label is Label.SKIPPED, f"{name} gives {empty.label} for a record without any part"
    broken = await replace(bench, judge=ScriptedJudge(_fail)).measure(records[0])
    asks = not isinstance(broken, MetricFailure) and broken.usage.calls
    assert not asks, f"{name} gives {broken.label} if the judge fails: let the JudgeError through"


def _check_outcome(outcome: MetricOutcome, record: RagRecord) -> None:
    assert isinstance(outcome, MetricResult), (
        f"{outcome.metric} fails on {record.id}: {outcome.error_type}: {outcome.message}"
    )
    known = {chunk.id for chunk in record.chunks}
    cited = {chunk_id for verdict in outcome.verdicts for chunk_id in verdict.chunk_ids}
    cited |= {verdict.chunk_id for verdict in outcome.chunk_verdicts}
    assert cited <= known, (
        f"{outcome.metric} names chunks that are not in the record: {sorted(cited - known)}"
    )


def _fail(request: JudgeRequest[BaseModel]) -> BaseModel:
    raise JudgeUnavailable(f"this judge fails on purpose ({request.step})")


def _check_identity(identity: JudgeIdentity) -> None:
    assert identity.provider, "`identity.provider` is empty: every score records it"
    assert identity.model, "`identity.model` is empty: every score records it"


async def _check_judge(judge: Judge) -> None:
    checked = _Checked(judge)
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(Faithfulness().measure(_WHOLE, StepSession(_WHOLE, checked)))
    assert checked.answered, "it was never asked"


class _Checked:
    """A judge that checks the replies of another."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.answered = 0

    @property
    def identity(self) -> JudgeIdentity:
        return self._judge.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        reply = await self._judge.ask(request)
        wanted, given = request.reply_type, type(reply.value)
        assert isinstance(reply.value, wanted), f"asked for {wanted.__name__}, it gave {given.__name__}"
        numbers = (reply.usage.calls, reply.usage.input_tokens, reply.usage.output_tokens)
        assert min(numbers) >= 0, f"its usage is negative: {reply.usage}"
        self.answered += 1
        return reply

    async def aclose(self) -> None:
        await self._judge.aclose()


async def _check_embedder(embedder: Embedder) -> None:
    texts = ["How long do refunds take?", "Cats purr.", "How long do refunds take?", "漢字"]
    vectors = (await embedder.embed(texts)).vectors
    assert len(vectors) == len(texts), f"{len(texts)} texts gave {len(vectors)} vectors"
    lengths = {len(vector) for vector in vectors}
    assert len(lengths) == 1, f"its vectors have several lengths: {sorted(lengths)}"
    assert all(math.isfinite(number) for vector in vectors for number in vector), "a number is not finite"
    alike, other = _cosine(vectors[0], vectors[2]), _cosine(vectors[0], vectors[1])
    assert alike > other, "two equal texts are no more similar than two different ones: is the order kept?"


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    length = math.hypot(*one) * math.hypot(*other)
    product = sum(left * right for left, right in zip(one, other, strict=True))
    return product / length if length else 0.0
