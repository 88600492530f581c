"""The drift check: is the judge still the one that the scores of last week came from?"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from ragtrace.budget import Budget, BudgetGuard, OverBudget, SpendLedger
from ragtrace.drift import (
    Anchor,
    AnchorRun,
    AnchorScore,
    AnchorSet,
    DriftState,
    RunResult,
    SeenModel,
    flips,
    read_anchors,
    weigh,
)
from ragtrace.model import Evaluation, Label, MetricFailure, MetricResult
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.config.values import BudgetPeriodsConfig
from ragtrace_collector.judge import JudgeGuard, JudgeGuards, LiveConfig, budget_of, guards_of, open_evaluator
from ragtrace_collector.store.budget import DriftRuns
from ragtrace_collector.store.store import Store
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
        judge = self.config.judge.model_copy(update={"cache": None})  # it is the judge that is asked
        config = self.config.model_copy(update={"judge": judge})
        anchors = await asyncio.to_thread(read_anchors, config.drift.anchors or "")
        budget = drift_budget(config)
        guard = BudgetGuard(budget=budget, ledger=self.spend_ledger, clock=self.clock)
        guards = replace(
            guards_of(config, clock=self.clock, spend_ledger=None),
            budget=budget,
            budget_guard=guard if budget.limits else None,
        )
        began_ns = self.clock.now_ns()
        async with aclosing(open_evaluator(config, guards)) as guarded:
            evaluator = guarded.evaluator
            evaluations = await _judge_all(anchors, evaluator, at_once=judge.max_concurrency)
        runs = await self.store.runs()
        ended_ns = self.clock.now_ns()
        run = compared(runs, run_of(evaluations, anchors, evaluator, began_ns=began_ns, ended_ns=ended_ns))
        await self.store.add_run(run)
        _tell(runs, run)
        return run, guards


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


def _tell(runs: Sequence[AnchorRun], run: AnchorRun) -> None:
    """Log a run, without content: a drift as a warning, an incomplete run with its counts."""
    earlier = series_of(runs, run)
    what = event("drift_check", result=str(run.result), judged=run.judged, anchors=run.anchors)
    match run.result:
        case RunResult.DRIFTED:
            number = len({flip.anchor for flip in flips(earlier, run)})
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
    """Sum up the evaluations of all anchors, as a baseline, or say why they are none."""
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


_EVERY_NS: Final = 24 * 3600 * 10**9


@dataclass(slots=True, kw_only=True)
class DriftStage:
    """Judges the anchors when they are due, and says whether the judge is steady."""

    live: LiveConfig
    store: Store
    clock: Clock
    changes: Counter[str] = field(default_factory=Counter)
    """Model changes since the process started, by requested model."""
    _running: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A run that is due and one before an alert would pay for the same anchors."""

    async def step(self) -> bool:
        """Note who answered, and run the check if it is due. It never finds more work."""
        await self.note_models()
        version = self._version
        if self._is_configured and await self.store.drift.claim(
            version, now_ns=self.clock.now_ns(), every_ns=_EVERY_NS
        ):
            try:
                await self.run()
            finally:
                await self.store.drift.end_claim(version)
        return False

    async def run(self) -> AnchorRun:
        """Judge the anchors now, compare them with the first runs, and keep and tell what follows.

        Raises:
            ConfigError: the anchors or the evaluator cannot be used.
            StoreUnavailable: it cannot be kept.
        """
        async with self._running:
            check = DriftCheck(
                config=self.live.now.config,
                store=self.store.drift,
                spend_ledger=self.store.budget,
                clock=self.clock,
            )
            run, guards = await check.run()
        await self._note(guards.by_name.values())
        return run

    async def state(self) -> DriftState:
        """Return what is known now, of this evaluator version.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        runs = await self.store.drift.runs()
        models = await self.store.drift.seen_models()
        state = state_of(runs, self._version) if self._is_configured else DriftState()
        return replace(
            state,
            runs=Counter(str(run.result) for run in runs),
            model_changes=_changes(models),
            marks=tuple(sorted(_marks(state, models))),
        )

    async def note_models(self) -> None:
        """Keep which models answered since the last time, and tell the changes.

        Raises:
            StoreUnavailable: they cannot be kept; they are noted again next time.
        """
        guarded = self.live.now.guarded
        await self._note(guarded.guards.by_name.values())

    async def _note(self, guards: Iterable[JudgeGuard]) -> None:
        found = [*_answered(guards, now_ns=self.clock.now_ns())]
        if not found:
            return
        for model in await self.store.drift.see_models(found):
            self.changes[model.requested] += 1
            log.warning(
                "the judge %s is now answered by %s%s, not by the same as before",
                model.requested,
                model.answered,
                f" ({model.fingerprint})" if model.fingerprint else "",
                extra=event("judge_model_changed", requested=model.requested, answered=model.answered),
            )

    @property
    def _is_configured(self) -> bool:
        return self.live.now.config.drift.anchors is not None

    @property
    def _version(self) -> str:
        return self.live.now.guarded.evaluator.version


def state_of(runs: Sequence[AnchorRun], version: str) -> DriftState:
    """Return whether the judge of an evaluator version has drifted, by its last complete run."""
    complete = [run for run in runs if run.evaluator_version == version and run.is_complete]
    if not complete:
        return DriftState()
    last = complete[-1]
    drifted = [run for run in complete if run.series == last.series and run.result is RunResult.DRIFTED]
    return DriftState(
        last=last,
        is_drifted=last.result is RunResult.DRIFTED,
        since_ns=drifted[0].began_ns if drifted else None,
    )


def _marks(state: DriftState, models: Sequence[SeenModel]) -> Iterator[tuple[int, str]]:
    """Yield when the judge drifted, and when another model began to answer."""
    if state.is_drifted and state.since_ns is not None:
        yield state.since_ns, "the judge drifted"
    for model in _later(models):
        yield model.first_ns, f"{model.answered} began to answer for {model.requested}"


def _later(models: Sequence[SeenModel]) -> Iterator[SeenModel]:
    """Yield who answered after the first of its requested model."""
    first: dict[str, int] = {}
    for model in models:
        if model.first_ns > first.setdefault(model.requested, model.first_ns):
            yield model


def _answered(guards: Iterable[JudgeGuard], *, now_ns: int) -> Iterator[SeenModel]:
    for guard in guards:
        answered_by, guard.answered_by = guard.answered_by, set()
        for model, fingerprint in sorted(answered_by):
            yield SeenModel(
                requested=guard.requested,
                answered=model,
                fingerprint=fingerprint,
                first_ns=now_ns,
                last_ns=now_ns,
            )


def _changes(models: Sequence[SeenModel]) -> Counter[str]:
    """Count by requested model who answered after the first."""
    found = Counter(dict.fromkeys((model.requested for model in models), 0))
    found.update(model.requested for model in _later(models))
    return found
