"""What a back-fill will take: from sizes, from a pilot, and what becomes of the pilot's verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

import pytest

from ragtrace.backends import MemorySink
from ragtrace.backfill import DryRun, EstimateRange, Progress, ResumableRun, backfill, dry_run
from ragtrace.budget import Price, Prices
from ragtrace.compat.tool import ToolPrompted, tool_named
from ragtrace.judge import CacheFile, CacheSettings, Script, ScriptedJudge, cached
from ragtrace.metrics import metric_named
from ragtrace.model import JudgedAnswer, JudgeIdentity, Usage
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


@pytest.mark.slow
async def test_a_larger_pilot_holds_a_smaller_one_and_is_not_the_first_of_the_source() -> None:
    drawn: dict[int, set[str]] = {}
    for pilot in (5, 10):
        ids = drawn.setdefault(pilot, set())

        def note(answer: JudgedAnswer, ids: set[str] = ids) -> None:
            ids.add(answer.record.id)

        stored = StoredTraces(*answers(40))
        await dry_run(
            stored, evaluator=Evaluator(metrics=METRICS, judge=PaidJudge()), pilot=pilot, on_evaluated=note
        )
    assert (len(drawn[5]), len(drawn[10])) == (5, 10)
    assert drawn[5] < drawn[10]
    assert not drawn[10] <= {f"{trace.trace_id}:{1:016x}" for trace in answers(10)}


async def test_a_judge_without_a_price_costs_nobody_knows_what() -> None:
    nothing = Prices(as_of="", models={})
    for pilot in (0, 5):
        estimate = (await plan(answers(9), pilot=pilot, prices=nothing)).estimate
        assert estimate.usd is None
        assert estimate.calls is not None


async def test_a_judge_that_computes_takes_nothing() -> None:
    estimate = (await plan(answers(9), ScriptedJudge())).estimate
    assert estimate.records == 9
    for interval in (estimate.calls, estimate.input_tokens, estimate.usd):
        assert interval is not None
        assert astuple(interval) == (0, 0, 0)
    nothing = (await plan([rag_trace(0, None)], pilot=5)).estimate
    assert (nothing.records, nothing.pilot) == (0, 0)
    assert nothing.calls == EstimateRange(low=0, likely=0, high=0)


async def test_a_pilot_that_nobody_answered_tells_nothing_and_says_why() -> None:
    planned = await plan(answers(9), PaidJudge(Script(error="judge_refused")), pilot=5)
    assert (planned.pilot.failed, planned.pilot.is_clean) == ({"judge_refused": 5}, False)
    assert (planned.estimate.calls, planned.estimate.usd) == (None, None)


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


async def test_where_replies_are_kept_what_is_repeated_may_cost_nothing(tmp_path: Path) -> None:
    file = CacheFile(CacheSettings(path=tmp_path / "judge.db"))
    judge, stored = cached(PaidJudge(), file), [rag_trace(each, RIGHT) for each in range(12)]
    estimate = (await plan(stored, judge)).estimate
    assert estimate.records == 1
    assert estimate.calls == EstimateRange(low=0, likely=2, high=36)
    await judge.aclose()
