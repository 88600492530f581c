"""The rehearsal: what a run would do."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.backfill.choosing import Item, choose, evaluator_of
from ragtrace.backfill.finding import SearchedUpTo
from ragtrace.backfill.report import BackfillReport, Ledger
from ragtrace.backfill.run import Run
from ragtrace.backfill.selection import Selection
from ragtrace.evaluation import evaluate
from ragtrace.in_order import map_in_order
from ragtrace.judge import ScriptedJudge
from ragtrace.model import Evaluation
from ragtrace.ports import Judge, Metric, TraceReader

__all__ = ["rehearse"]


async def rehearse(
    reader: TraceReader,
    *,
    metrics: Sequence[Metric],
    judge: Judge,
    second_judge: Judge | None = None,
    selection: Selection | None = None,
    concurrency: int = 8,
    run: Run | None = None,
) -> BackfillReport:
    """Say what a back-fill would do; the judge is not asked, and nothing is sent.

    ``judged`` counts the records that would be judged. ``usage`` is an estimate: one claim a sentence, a
    token for every four characters, and no question asked twice.

    Raises:
        ReadError: the source could not be read.
    """
    ledger, stand_in = Ledger(), ScriptedJudge()

    async def work(item: Item) -> Evaluation | None:
        if isinstance(item, SearchedUpTo):
            return None
        return await evaluate(item.record, metrics=metrics, judge=stand_in)

    async def count(evaluation: Evaluation | None) -> None:
        stand_in.requests.clear()
        if evaluation is not None:
            ledger.count(evaluation)

    evaluator = evaluator_of(metrics, judge, second_judge)
    chosen = choose(reader, selection or Selection(), ledger, evaluator, run)
    await map_in_order(chosen, work, count, concurrency=concurrency)
    ledger.labels.clear()  # those of the stand-in
    return ledger.report()
