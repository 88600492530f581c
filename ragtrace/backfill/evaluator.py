"""Judges answers, and stores the carriers of their evaluations."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from ragtrace.backfill._earlier_turns import EarlierTurns
from ragtrace.backfill._kept_turns import KeptTurns
from ragtrace.backfill._record_selection import SelectedRecord
from ragtrace.backfill.report import RunCounts
from ragtrace.backfill.resume import ResumableRun
from ragtrace.conversations.judging import placed_turn
from ragtrace.errors import JudgeOverBudget
from ragtrace.model import Evaluation, JudgedAnswer
from ragtrace.pipeline.carriers import attach
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Clock
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.otlp import encode

T = TypeVar("T")


class OutgoingCarrier(NamedTuple):
    """A carrier to send."""

    trace_id: str
    span_id: str
    payload: bytes


class EvaluatedRecord(NamedTuple):
    """The outcome of a selected record."""

    answer: JudgedAnswer
    outgoing: OutgoingCarrier | None

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation."""
        return self.answer.evaluation

    @property
    def exceeded_limit(self) -> str:
        """The budget limit that stopped the evaluation; empty if none did."""
        kind = JudgeOverBudget.error_type
        return next(
            (failure.message for failure in self.evaluation.failures if failure.error_type == kind), ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillEvaluator:
    """Judges answers, and builds their carriers."""

    evaluator: Evaluator
    attach: AttachOptions
    run: ResumableRun | None
    clock: Clock
    turns: KeptTurns | None = None
    """Keeps answers of sessions as turns, if these are judged too."""
    earlier: EarlierTurns | None = None
    """Shows the judge earlier turns of an answer's session, if that is wanted."""

    async def judge_one(self, candidate: SelectedRecord) -> EvaluatedRecord | None:
        """Judge an answer, or leave it for later. With a run, its carrier is on disk when this returns."""
        record, sample, earlier, tenant = candidate
        if self.earlier is not None:
            record = self.earlier.shown_with(record, tenant=tenant)
        evaluation = await finish_unless_left(self.evaluator.evaluate(record, clock=self.clock), self.run)
        if evaluation is None:
            return None
        judged = EvaluatedRecord(JudgedAnswer(record=record, evaluation=evaluation, sample=sample), None)
        if judged.exceeded_limit or not evaluation.results:  # a later run tries it again
            return judged
        span = attach(
            evaluation,
            record,
            sample=sample,
            options=self.attach,
            now_ns=self.clock.now_ns(),
            mode="backfill",
            earlier=earlier,
            cost_usd=self.evaluator.cost_usd(evaluation),
        )
        if span is None:
            return judged
        outgoing = OutgoingCarrier(span.trace_id, span.span_id, encode([span]))
        placed = placed_turn(record, evaluation, span, tenant=tenant) if self.turns else None
        if self.turns and placed:  # before the carrier: an answer that has one is not judged again
            await self.turns.add(placed, earlier)
        if self.run is not None:
            await self.run.progress.keep(*outgoing)
        return EvaluatedRecord(replace(judged.answer, carrier_span_id=span.span_id), outgoing)


async def finish_unless_left(evaluating: Coroutine[Any, Any, T], run: ResumableRun | None) -> T | None:
    """Finish what judges; abandon it if the run is stopped and configured to leave pending work."""
    if run is None or not run.leaves_waiting:
        return await evaluating
    finished, stopped = asyncio.create_task(evaluating), asyncio.create_task(run.stop.wait())
    try:
        await asyncio.wait((finished, stopped), return_when=asyncio.FIRST_COMPLETED)
        return finished.result() if finished.done() else None
    finally:
        finished.cancel()
        stopped.cancel()
        await asyncio.wait((finished, stopped))


async def may_begin(run: ResumableRun | None, ledger: RunCounts) -> bool:
    """Wait until an answer may begin; return whether it may be judged."""
    if run is None:
        return not ledger.over_budget
    if not (run.stop.is_set() or ledger.over_budget):
        await run.turn()
    return not (run.stop.is_set() or ledger.over_budget)
