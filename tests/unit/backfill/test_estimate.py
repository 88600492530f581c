"""What a back-fill will take: from sizes, from a pilot, and what becomes of the pilot's verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ragtrace.backends import MemorySink
from ragtrace.backfill import DryRun, EstimateRange, Progress, ResumableRun, backfill, dry_run
from ragtrace.budget import Price, Prices
from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import JudgeIdentity
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Judge, Metric
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
    traces: Sequence[Trace], judge: Judge, *, pilot: int = 0, run: ResumableRun | None = None
) -> DryRun:
    evaluator = Evaluator(metrics=METRICS, judge=judge, prices=PRICES)
    return await dry_run(StoredTraces(*traces), evaluator=evaluator, pilot=pilot, run=run)


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
