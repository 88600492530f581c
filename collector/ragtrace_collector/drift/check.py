"""One drift check: the anchors are judged, compared with the first runs, and the result is kept and told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from ragtrace.budget import Budget, BudgetGuard, OverBudget, SpendLedger
from ragtrace.drift.evidence import flips, weigh
from ragtrace.drift.runs import Anchor, AnchorRun, AnchorScore, AnchorSet, RunResult, read_anchors
from ragtrace.model import Evaluation, Label, MetricFailure, MetricResult
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.config.budget import BudgetPeriodsConfig
from ragtrace_collector.judge import JudgeGuards, budget_of, guards_of, open_evaluator
from ragtrace_collector.store.drift import DriftRuns
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


def check_anchors(config: CollectorConfig) -> None:
    """See that the anchors can be read, if there are any.

    Raises:
        ConfigError: they cannot.
    """
    if config.drift.anchors is not None:
        read_anchors(config.drift.anchors)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCheck:
    """What a check needs: also a command can run one beside the collector."""

    config: CollectorConfig
    store: DriftRuns
    spend_ledger: SpendLedger
    clock: Clock

    async def run(self) -> tuple[AnchorRun, JudgeGuards]:
        """Judge the anchors now; return the run, and the guards that the requests passed.

        Raises:
            ConfigError: the anchors or the evaluator cannot be used.
            StoreUnavailable: the run cannot be kept.
        """
        anchors = await asyncio.to_thread(read_anchors, self.config.drift.anchors or "")
        judging = AnchorJudging.of(self.config, self.spend_ledger, self.clock)
        judged = await judging.run(anchors)
        runs = await self.store.runs()
        run = compared(runs, judged)
        await self.store.add_run(run)
        _tell(runs, run)
        return run, judging.guards


def compared(runs: Sequence[AnchorRun], run: AnchorRun) -> AnchorRun:
    """Return a run with its result: compared with the complete runs of its series, if there are any."""
    earlier = series_of(runs, run)
    if not run.is_complete or not earlier:
        return run
    evidence = weigh(earlier, run)
    result = RunResult.DRIFTED if evidence.is_drift else RunResult.STEADY
    return replace(run, result=result, evidence=evidence.total)


def series_of(runs: Sequence[AnchorRun], run: AnchorRun) -> tuple[AnchorRun, ...]:
    """Return the complete runs that a run is compared with, the oldest first."""
    return tuple(one for one in runs if one.series == run.series and one.is_complete and one is not run)


def _flipped(earlier: Sequence[AnchorRun], run: AnchorRun) -> int:
    return len({flip.anchor for flip in flips(earlier, run)})


def _tell(runs: Sequence[AnchorRun], run: AnchorRun) -> None:
    """Log a run, without content: a drift as a warning, an incomplete run with its counts."""
    earlier = series_of(runs, run)
    what = event("drift_check", result=str(run.result), judged=run.judged, anchors=run.anchors)
    match run.result:
        case RunResult.DRIFTED:
            number = _flipped(earlier, run)
            log.warning(
                "the judge %s has changed: it judges %d of %d anchors differently than in the first runs; "
                "`ragtrace drift status` names them",
                *(run.judge, number, run.judged),
                extra=event("judge_drifted", judge=run.judge, flipped=number, anchors=run.anchors),
            )
        case RunResult.PARTIAL | RunResult.FAILED:
            log.warning(
                "the drift check is incomplete: %d of %d anchors judged, %d over budget, %d failed",
                *(run.judged, run.anchors, run.over_budget, run.failed),
                extra=what,
            )
        case RunResult.BASELINE if runs:
            log.info("a new baseline of the drift check: the evaluator or the anchors changed", extra=what)
        case _:
            log.info(
                "drift check: %s, %d of %d anchors judged", run.result, run.judged, run.anchors, extra=what
            )


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
