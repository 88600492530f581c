"""One drift check: the anchors are judged, compared with the first runs, and the result is kept and told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragtrace.budget import SpendLedger
from ragtrace.drift.evidence import flips, weigh
from ragtrace.drift.runs import AnchorRun, RunResult, read_anchors
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.drift.judging import AnchorJudging
from ragtrace_collector.judge.guard import JudgeGuards
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
