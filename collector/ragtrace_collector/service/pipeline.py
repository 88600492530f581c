"""The stages over one work store: built, started, drained and stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.assemble import AnswerReader, AssemblePolicy, Assembly, Quarantine, Sweeper
from ragtrace_collector.config import CollectorConfig, ExportConfig, JudgeConfig, SampleConfig
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.deliver import DeliverStage, HoldStage
from ragtrace_collector.drift import DriftStage
from ragtrace_collector.evaluate import EvaluateStage, WorkerPool
from ragtrace_collector.judge import GuardedEvaluator, Live, LiveConfig
from ragtrace_collector.ledger import Coverage
from ragtrace_collector.receive.intake import Intake, RequestMemory
from ragtrace_collector.sample import SampleStage
from ragtrace_collector.sampling import Limits, Sampler, TenantFloor
from ragtrace_collector.sessions import SessionStage
from ragtrace_collector.stage import Stage
from ragtrace_collector.store.records import HoldMode, Job, StoreUnavailable
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.telemetry.scores import Scores

log = logging.getLogger("ragtrace.collector")


_SAMPLE_PAUSE_S: Final = 0.1
_WORK_PAUSE_S: Final = 1.0
_EXPIRE_PAUSE_S: Final = 30.0
_SWEEP_PAUSE_S: Final = 10.0
_DRIFT_PAUSE_S: Final = 30.0
_SESSION_PAUSE_S: Final = 5.0


class Role(StrEnum):
    """What a process does with the store that it shares."""

    ALL = "all"
    INGEST = "ingest"
    """Receive spans, assemble traces and sample their answers."""
    EVALUATE = "evaluate"
    """Judge answers, and deliver what is ready."""

    def judging(self, config: CollectorConfig) -> CollectorConfig:
        """Return what its evaluator is opened by: who only ingests needs no judge's key."""
        return config.model_copy(update={"judge": JudgeConfig()}) if self is Role.INGEST else config


@dataclass(slots=True, kw_only=True)
class StorePipeline:
    """The stages over one work store, and what they share."""

    configuration: LiveConfig
    role: Role
    store: Store
    assembly: Assembly
    sample_stage: SampleStage
    sweeper: Sweeper
    evaluator: EvaluateStage
    holder: HoldStage
    deliverers: tuple[DeliverStage, ...]
    drift: DriftStage
    sessions: SessionStage
    intake: Intake
    counters: Counters
    clock: Clock
    calendar: Clock
    """For what has the applications' times."""
    _takes_jobs: bool = True

    @property
    def live(self) -> Live:
        """The current snapshot of the live configuration."""
        return self.configuration.now

    @property
    def config(self) -> CollectorConfig:
        """The live configuration."""
        return self.live.config

    async def prepare(self, config: CollectorConfig, evaluator: GuardedEvaluator) -> Callable[[], None]:
        """Get ready to follow another configuration; the result does it.

        Raises:
            ConfigError: it cannot be used.
        """
        live = Live.of(config, evaluator, sampler_of(config.sample))
        await self.sample_stage.recall(live.sampler)
        return partial(self._follow, live)

    def _follow(self, live: Live) -> None:
        self.configuration.now = live
        self.assembly.follow(assemble_policy_of(live.config))

    async def recover(self) -> None:
        """Look again at the traces that were open when the last process ended."""
        if self.role is Role.EVALUATE:
            return
        if self.config.attach.mode != "hold":  # it was, before
            await self.holder.release_all()
        await self.sample_stage.recall(self.live.sampler)
        for trace_id in await self.store.undecided():
            self.assembly.add(trace_id, (), reopened=True)

    async def run(self, stop: asyncio.Event) -> None:
        """Run every stage until ``stop`` is set."""
        async with asyncio.TaskGroup() as tasks:
            for stage in self._stages(workers=tasks):
                tasks.create_task(stage.run(stop, self.counters), name=stage.name)

    def _stages(self, *, workers: asyncio.TaskGroup) -> tuple[Stage, ...]:
        """Return the table of stages."""
        queued, done = self.sample_stage.queued, self.evaluator.done
        pool = WorkerPool(
            most=lambda: self.config.judge.max_concurrency,
            take=self._take,
            judge=self.evaluator.attempt,
            workers=workers,
            wake=queued,
            counters=self.counters,
        )
        release = Stage(name="release", step=self.holder.step, pause_s=_SAMPLE_PAUSE_S)
        ingesting = (
            Stage(name="sample", step=self._sample, pause_s=_SAMPLE_PAUSE_S),
            *((release,) if self.config.attach.mode == "hold" else ()),
            Stage(name="throttle", step=self._throttle, pause_s=_WORK_PAUSE_S),
            Stage(name="sweep", step=self.sweeper.step, pause_s=_SWEEP_PAUSE_S),
        )
        evaluating = (
            Stage(name="evaluate", step=pool.step, pause_s=_WORK_PAUSE_S, wake=queued),
            *(
                Stage(
                    name=f"deliver-{deliverer.sink.name}",
                    step=deliverer.turn,
                    pause_s=_WORK_PAUSE_S,
                    wake=done,
                )
                for deliverer in self.deliverers
            ),
            Stage(name="drift", step=self.drift.step, pause_s=_DRIFT_PAUSE_S),
            Stage(name="sessions", step=self.sessions.step, pause_s=_SESSION_PAUSE_S),
            Stage(name="expire", step=self._expire, pause_s=_EXPIRE_PAUSE_S),
        )
        return (
            *(ingesting if self.role is not Role.EVALUATE else ()),
            *(evaluating if self.role is not Role.INGEST else ()),
        )

    async def _take(self, most: int) -> Sequence[Job]:
        return await self.evaluator.take(most) if self._takes_jobs else ()

    async def _sample(self) -> bool:
        found_work = await self.sample_stage.step()
        if found_work:  # held traces without a RAG call can go on
            self.holder.released.set()
        return found_work

    async def _throttle(self) -> bool:
        """Lower the sampling rates so that the budget lasts, if `budget.at_limit` asks for that."""
        guards = self.live.guarded.guards
        if (
            guards is not None
            and guards.budget_guard is not None
            and self.config.budget.at_limit == "lower_rate"
        ):
            self.live.sampler.throttle(await guards.budget_guard.find_share())
        return False

    async def _expire(self) -> bool:
        now_ns = self.clock.now_ns()
        await self.store.expire(
            decided_before_ns=now_ns - nanoseconds(self.config.assemble.linger),
            ended_before_ns=now_ns - nanoseconds(self.config.store.retention),
            began_before_ns=self.calendar.now_ns() - nanoseconds(self.config.index.max_age),
            most_rows=self.config.most_index_rows,
            keeps_content=self.config.index.content,
        )
        return False

    async def drain(self) -> None:
        """Process complete traces, then wait until they are judged and delivered, or until the deadline.

        At half time, held spans are released as they are, so that there is time to deliver them. What other
        processes can do is left to them.
        """
        half_s = self.config.drain_timeout.total_seconds() / 2
        async with _at_most(half_s):
            self._takes_jobs = await self.store.is_alone()
            if self.role is not Role.EVALUATE:
                await self.sample_stage.step(everything=True)
            await self._until_finished()
        if self.role is not Role.EVALUATE and self._takes_jobs:
            async with _at_most(half_s):
                await self.holder.release_all()
                await self._until_finished()

    async def _until_finished(self) -> None:
        # Polled: the store holds the work, and the stages that end it do not signal this.
        while await self.store.unfinished(now_ns=self._due_ns()):  # noqa: ASYNC110
            await asyncio.sleep(_SAMPLE_PAUSE_S)

    def _due_ns(self) -> int:
        """Return the latest due time of a job worth waiting for: none, if no judge may be asked."""
        return 0 if self.live.is_judge_unavailable else self.clock.now_ns()

    async def left(self) -> dict[str, int]:
        """Count what is not finished, by where it waits; what is nought is left out."""
        return {name: number for name, number in (await self.store.ledger()).left().items() if number}


@asynccontextmanager
async def _at_most(seconds: float) -> AsyncIterator[None]:
    """Stop at the deadline, or if the store is unavailable: what is left is on disk."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        pass
    except StoreUnavailable as exc:
        log.error("stopping without waiting for what is left: %s", exc, extra=event("drain_ended"))  # noqa: TRY400


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """What the pipeline shares with the pages of its process."""

    sinks: Mapping[str, SpanSink]
    log_sinks: Mapping[str, SpanSink]
    """Of the application's own log records."""
    tracer: Tracer
    counters: Counters
    room: RequestMemory
    coverage: Coverage
    scores: Scores | None = None
    """What verdicts add up to, if the metrics tell it."""


def pipeline_over(
    store: Store,
    shared: SharedParts,
    live: LiveConfig,
    role: Role,
    *,
    assembly: Assembly,
    clock: Clock,
    calendar: Clock,
) -> StorePipeline:
    """Build the stages over one store, and wire them together."""
    config, counters, sinks = live.now.config, shared.counters, tuple(shared.sinks)
    queued, done = asyncio.Event(), asyncio.Event()  # there is something to judge; to deliver
    holds = config.attach.mode == "hold"
    holder = HoldStage(
        store=store,
        timeout_ns=nanoseconds(config.attach.hold_timeout),
        most_bytes=config.store.max_bytes // 8,
        is_judge_away=lambda: live.now.is_judge_unavailable,
        counters=counters,
        clock=clock,
        released=done,
    )
    reader = AnswerReader(store=store, counters=counters)
    return StorePipeline(
        configuration=live,
        role=role,
        store=store,
        assembly=assembly,
        counters=counters,
        clock=clock,
        calendar=calendar,
        intake=Intake(
            store=store,
            assembly=assembly,
            live=live,
            forward_to=forward_to(config),
            forward_logs_to=tuple(shared.log_sinks),
            counters=counters,
            clock=clock,
            received=done,
            room=shared.room,
            holding=holder.holding if holds else lambda: HoldMode.OFF,
        ),
        holder=holder,
        sample_stage=SampleStage(
            store=store,
            reader=reader,
            assembly=assembly,
            quarantine=Quarantine(store=store, counters=counters, clock=clock),
            live=live,
            counters=counters,
            clock=clock,
            queued=queued,
            tracer=shared.tracer,
        ),
        sweeper=Sweeper(store=store, assembly=assembly, counters=counters),
        evaluator=EvaluateStage(
            store=store,
            reader=reader,
            live=live,
            sinks=sinks,
            openinference_sinks=frozenset(
                export.endpoint for export in config.export if export.reads_openinference
            ),
            counters=counters,
            coverage=shared.coverage,
            scores=shared.scores,
            logs_verdicts=config.telemetry.verdict_log,
            clock=clock,
            done=done,
            tracer=shared.tracer,
            holds=holds,
        ),
        deliverers=tuple(
            DeliverStage(store=store, sink=sink, endpoint=endpoint, counters=counters, clock=clock)
            for endpoint, sink in (*shared.sinks.items(), *shared.log_sinks.items())
        ),
        drift=DriftStage(live=live, store=store, clock=clock),
        sessions=SessionStage(store=store, live=live, sinks=sinks, counters=counters, clock=clock, done=done),
    )


def forward_to(config: CollectorConfig) -> tuple[str, ...]:
    """Return the endpoints that get the application's own spans."""
    return tuple(export.endpoint for export in config.export if export.forward and export.accepts_spans)


def forward_logs_to(config: CollectorConfig) -> Mapping[str, ExportConfig]:
    """Return the exports that get the application's own log records, by their name in the outbox.

    What waits there is another message than the carriers that wait for the same address.
    """
    return {
        f"forward:{export.endpoint}": export
        for export in config.export
        if export.forward and export.accepts_logs
    }


def release_to(config: CollectorConfig) -> tuple[str, ...]:
    """Return the endpoints that get held spans: all that can, if no endpoint gets originals now."""
    return forward_to(config) or tuple(export.endpoint for export in config.export if export.accepts_spans)


def assemble_policy_of(config: CollectorConfig) -> AssemblePolicy:
    """Return how long a trace waits for its spans."""
    return AssemblePolicy(
        quiet_ns=nanoseconds(config.assemble.quiet_period),
        deadline_ns=nanoseconds(config.assemble.deadline),
        max_open_traces=config.assemble.max_open_traces,
        max_spans_per_trace=config.assemble.max_spans_per_trace,
    )


def sampler_of(config: SampleConfig) -> Sampler:
    """Build the sampler; it has seen nothing yet."""
    floor, limit = config.tenant_floor, config.limit
    return Sampler(
        plan=config.plan(),
        fairness=TenantFloor(answers=floor) if floor else None,
        limits=Limits(answers=limit.answers, per_tenant=limit.per_tenant) if limit else None,
    )
