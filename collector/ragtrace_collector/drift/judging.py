"""One run: all anchors, judged by the live configuration without its cache, from a budget of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from ragtrace.budget import Budget, BudgetGuard, OverBudget, SpendLedger
from ragtrace.drift.runs import Anchor, AnchorRun, AnchorScore, AnchorSet, RunResult
from ragtrace.model import Evaluation, Label, MetricFailure, MetricResult
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.config.budget import BudgetPeriodsConfig
from ragtrace_collector.judge.evaluator import open_evaluator
from ragtrace_collector.judge.guard import JudgeGuards, budget_of, guards_of

BUDGET_NAME: Final = "drift"
_LABELED: Final = "faithfulness"
"""The metric that the labels are about."""
_OWN_PROFILE: Final = "ragtrace"
_MOST_FAILED: Final = 0.2
"""With a larger share of failures, a run is no measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorJudging:
    """What a run needs."""

    config: CollectorConfig
    spend_ledger: SpendLedger
    clock: Clock
    guards: JudgeGuards

    @classmethod
    def of(cls, config: CollectorConfig, spend_ledger: SpendLedger, clock: Clock) -> AnchorJudging:
        """Prepare runs with the configured judge: never from its cache.

        Raises:
            ConfigError: the table of prices cannot be read.
        """
        judge = config.judge.model_copy(update={"cache": None})
        config = config.model_copy(update={"judge": judge})
        budget = drift_budget(config)
        guards = guards_of(config, clock=clock, spend_ledger=None)
        guard = BudgetGuard(budget=budget, ledger=spend_ledger, clock=clock) if budget.limits else None
        return cls(
            config=config,
            spend_ledger=spend_ledger,
            clock=clock,
            guards=replace(guards, budget=budget, budget_guard=guard),
        )

    async def run(self, anchors: AnchorSet) -> AnchorRun:
        """Judge all anchors once. The result is the baseline's, or says why there is nothing to compare.

        Raises:
            ConfigError: the evaluator cannot be opened.
        """
        began_ns = self.clock.now_ns()
        async with open_evaluator(self.config, self.guards) as guarded:
            evaluator = guarded.evaluator
            evaluations = await _judge_all(anchors, evaluator, at_once=self.config.judge.max_concurrency)
        return run_of(evaluations, anchors, evaluator, began_ns=began_ns, ended_ns=self.clock.now_ns())


def drift_budget(config: CollectorConfig) -> Budget:
    """Return what all runs of a day may spend."""
    return budget_of(BUDGET_NAME, BudgetPeriodsConfig(day=config.drift.budget))


async def _judge_all(anchors: AnchorSet, evaluator: Evaluator, *, at_once: int) -> Mapping[str, Evaluation]:
    found: dict[str, Evaluation] = {}
    waiting = iter(anchors.anchors)

    async def work() -> None:
        for anchor in waiting:
            found[anchor.id] = await evaluator.evaluate(anchor.record)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(anchors.anchors))):
            group.create_task(work())
    return found


def run_of(
    evaluations: Mapping[str, Evaluation],
    anchors: AnchorSet,
    evaluator: Evaluator,
    *,
    began_ns: int,
    ended_ns: int,
) -> AnchorRun:
    """Sum up the evaluations of all anchors."""
    scores = {anchor.id: tuple(_scores(anchor, evaluations[anchor.id])) for anchor in anchors.anchors}
    failures = [_failures(evaluation) for evaluation in evaluations.values()]
    over_budget = sum(OverBudget.error_type in types for types in failures)
    failed = sum(bool(types) for types in failures) - over_budget
    result = RunResult.BASELINE
    if over_budget:
        result = RunResult.PARTIAL
    elif failed > _MOST_FAILED * len(anchors.anchors) or not any(scores.values()):
        result = RunResult.FAILED
    identity = evaluator.judge.identity
    return AnchorRun(
        evaluator_version=evaluator.version,
        anchors_sha256=anchors.sha256,
        judge=identity.name,
        began_ns=began_ns,
        ended_ns=ended_ns,
        anchors=len(anchors.anchors),
        scores=tuple(chain.from_iterable(scores.values())),
        failed=failed,
        over_budget=over_budget,
        result=result,
    )


def _failures(evaluation: Evaluation) -> frozenset[str]:
    outcomes = evaluation.outcomes
    return frozenset(outcome.error_type for outcome in outcomes if isinstance(outcome, MetricFailure))


def _scores(anchor: Anchor, evaluation: Evaluation) -> Iterator[AnchorScore]:
    for outcome in evaluation.outcomes:
        if isinstance(outcome, MetricResult) and outcome.score is not None:
            name = outcome.metric
            yield AnchorScore(
                anchor=anchor.id,
                metric=name if outcome.profile == _OWN_PROFILE else f"{name}.{outcome.profile}",
                score=outcome.score,
                passed=outcome.label is Label.PASS,
                supported=anchor.supported if name == _LABELED else None,
            )
