"""The stage that runs the drift check when it is due, and notices when another model answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ragtrace.drift.runs import AnchorRun, DriftState, RunResult, SeenModel
from ragtrace.ports import Clock
from ragtrace_collector.drift.check import DriftCheck
from ragtrace_collector.judge import JudgeGuard, LiveConfig
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


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
        guarded = self.live.now.shared_evaluator.guarded
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
        return self.live.now.shared_evaluator.guarded.evaluator.version


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
