"""What a back-fill will take: from sizes, from a pilot, and what becomes of the pilot's verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ragtrace.backends import MemorySink
from ragtrace.backfill import DryRun, EstimateRange, Progress, ResumableRun, backfill, dry_run
from ragtrace.budget import Price, Prices
from ragtrace.compat.tool import ToolPrompted, tool_named
from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Clock, FreeText, Judge, JudgeReply, JudgeRequest, Metric
from ragtrace.traces.trace import Trace
from tests.unit.backfill.stored_traces import RIGHT, WRONG, StoredTraces, rag_trace

METRICS: tuple[Metric, ...] = (metric_named("faithfulness"),)
PRICES = Prices(as_of="2026-11-01", models={"paid": {"model": Price(input=1.0, output=4.0)}})


class PaidJudge(ScriptedJudge):
    """Passes for a model of a provider."""

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(provider="paid", model="model")


def answers(number: int) -> list[Trace]:
    texts = (RIGHT, WRONG, f"{RIGHT} {WRONG} Refunds take 5 working days.")
    return [rag_trace(each, texts[each % 3] * (1 + each % 4)) for each in range(number)]


async def plan(
    traces: Sequence[Trace],
    judge: Judge | None = None,
    *,
    pilot: int = 0,
    metrics: tuple[Metric, ...] = METRICS,
    prices: Prices | None = PRICES,
    run: ResumableRun | None = None,
    second_judge: Judge | None = None,
    clock: Clock | None = None,
) -> DryRun:
    return await dry_run(
        StoredTraces(*traces),
        evaluator=Evaluator(
            metrics=metrics, judge=judge or PaidJudge(), second_judge=second_judge, prices=prices
        ),
        pilot=pilot,
        run=run,
        clock=clock,
    )


def holds(interval: EstimateRange | None, amount: float) -> bool:
    return interval is not None and interval.low <= amount <= interval.high


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ResumableRun]:
    with Progress(tmp_path / "progress.db") as progress:
        yield ResumableRun(progress=progress)


async def test_sizes_tell_what_a_run_takes_without_asking_the_judge() -> None:
    judge = PaidJudge()
    estimate = (await plan(answers(30), judge)).estimate
    assert judge.requests == []
    spent = (
        await backfill(
            StoredTraces(*answers(30)), MemorySink(), evaluator=Evaluator(metrics=METRICS, judge=judge)
        )
    ).usage
    assert (estimate.basis, estimate.records, estimate.pilot) == ("sizes", 30, 0)
    assert holds(estimate.calls, spent.calls)
    assert holds(estimate.input_tokens, spent.input_tokens)
    assert holds(estimate.output_tokens, spent.output_tokens)
    assert holds(estimate.usd, PRICES.cost_usd(spent, judge.identity) or 0.0)


async def test_what_the_pilot_judged_is_sent_by_the_run_and_not_paid_for_again(run: ResumableRun) -> None:
    judge, alone, sink = PaidJudge(), PaidJudge(), MemorySink()
    planned = await plan(answers(20), judge, pilot=6, run=run)
    asked = len(judge.requests)
    report = await backfill(
        StoredTraces(*answers(20)), sink, evaluator=Evaluator(metrics=METRICS, judge=judge), run=run
    )
    await backfill(
        StoredTraces(*answers(20)), MemorySink(), evaluator=Evaluator(metrics=METRICS, judge=alone)
    )
    assert (planned.pilot.judged, planned.pilot.usage.calls) == (6, asked)
    assert (report.already_evaluated, report.judged, report.sent) == (6, 14, 20)
    assert len(judge.requests) == len(alone.requests)
    assert holds(planned.estimate.calls, len(alone.requests))


async def test_prompts_of_other_tools_need_a_pilot() -> None:
    def reply(request: JudgeRequest[FreeText]) -> JudgeReply[FreeText]:
        texts = {"statements": ["It is so."]} if "statements" in request.step else {"statements": []}
        usage = Usage(calls=1, input_tokens=len(request.user), output_tokens=9)
        return JudgeReply(value=FreeText(text=str(texts)), usage=usage)

    ragas: tuple[Metric, ...] = (ToolPrompted(tool_named("faithfulness", "ragas")),)
    from_sizes = await plan(answers(9), metrics=ragas)
    assert (from_sizes.report.judged, from_sizes.report.failed) == (9, {})
    assert (from_sizes.estimate.calls, from_sizes.estimate.usd) == (None, None)
    from_pilot = (await plan(answers(9), PaidJudge(reply), metrics=ragas, pilot=5)).estimate
    assert from_pilot.input_tokens is not None
    assert from_pilot.input_tokens.low > 0
