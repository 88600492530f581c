"""The stages over one work store: built, started, drained and stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.assemble import AnswerReader, AssemblePolicy, Assembly, Quarantine, Sweeper
from ragtrace_collector.config import CollectorConfig, ExportConfig, FollowUpConfig, JudgeConfig, SampleConfig
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.deliver import DeliverStage, HoldLimits, HoldStage
from ragtrace_collector.drift import DriftStage
from ragtrace_collector.evaluate import EvaluateStage, LowScoreWatch, WorkerPool
from ragtrace_collector.judge import Live, LiveConfig, SharedEvaluator
from ragtrace_collector.ledger import Coverage
from ragtrace_collector.operations.signals import digest_of
from ragtrace_collector.receive.intake import Intake, RequestMemory
from ragtrace_collector.sample import SampleStage
from ragtrace_collector.sampling import FollowUpPolicy, FollowUps, Limits, Sampler, TenantFloor
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
    _differs: bool = False

    @property
    def live(self) -> Live:
        """The current snapshot of the live configuration."""
        return self.configuration.now

    @property
    def config(self) -> CollectorConfig:
        """The live configuration."""
        return self.live.config

    async def prepare(self, config: CollectorConfig, evaluator: SharedEvaluator) -> Callable[[], None]:
        """Get ready to follow another configuration; the result does it.

        Raises:
            ConfigError: it cannot be used.
        """
        live = Live.of(config, evaluator, sampler_of(config.sample))
        await self.sample_stage.recall(live.sampler)
        return partial(self._follow, live)

    def _follow(self, live: Live) -> None:
        self.configuration.exchange(live)
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
            Stage(name="compare", step=self._compare, pause_s=_EXPIRE_PAUSE_S),
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
        guards = self.live.shared_evaluator.guarded.guards
        if (
            guards is not None
            and guards.budget_guard is not None
            and self.config.budget.at_limit == "lower_rate"
        ):
            self.live.sampler.throttle(await guards.budget_guard.find_share())
        return False

    async def _compare(self) -> bool:
        """Warn once if another collector on the same store has other settings."""
        differs = await self.store.differs(digest_of(self.config.of_store()))
        if differs and not self._differs:
            log.warning(
                "another collector on this store has other settings, and either judges answers: give all the"
                " same configuration, or each cluster a database of its own",
                extra=event("settings_differ"),
            )
        self._differs = differs
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParts:
    """What the stages over one store share, and how each is built from it."""

    shared: SharedParts
    live: LiveConfig
    role: Role
    store: Store
    assembly: Assembly
    clock: Clock
    calendar: Clock
    queued: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something to judge."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something to deliver."""

    @property
    def config(self) -> CollectorConfig:
        return self.live.now.config

    @property
    def holds(self) -> bool:
        return self.config.attach.mode == "hold"

    def pipeline(self) -> StorePipeline:
        """Wire the stages together."""
        holder = self._holder()
        reader = AnswerReader(store=self.store, counters=self.shared.counters)
        return StorePipeline(
            configuration=self.live,
            role=self.role,
            store=self.store,
            assembly=self.assembly,
            counters=self.shared.counters,
            clock=self.clock,
            calendar=self.calendar,
            intake=self._intake(holder),
            holder=holder,
            sample_stage=self._sample_stage(reader),
            sweeper=Sweeper(store=self.store, assembly=self.assembly, counters=self.shared.counters),
            evaluator=self._evaluator(reader),
            deliverers=tuple(self._deliverers()),
            drift=DriftStage(live=self.live, store=self.store, clock=self.clock),
            sessions=self._sessions(),
        )

    def _holder(self) -> HoldStage:
        timeout_ns = nanoseconds(self.config.attach.hold_timeout)
        return HoldStage(
            store=self.store,
            limits=HoldLimits(timeout_ns=timeout_ns, most_bytes=self.config.store.max_bytes // 8),
            is_judge_away=lambda: self.live.now.is_judge_unavailable,
            counters=self.shared.counters,
            clock=self.clock,
            released=self.done,
        )

    def _intake(self, holder: HoldStage) -> Intake:
        return Intake(
            store=self.store,
            assembly=self.assembly,
            live=self.live,
            forward_to=forward_to(self.config),
            forward_logs_to=tuple(self.shared.log_sinks),
            counters=self.shared.counters,
            clock=self.clock,
            received=self.done,
            room=self.shared.room,
            holding=holder.holding if self.holds else lambda: HoldMode.OFF,
        )

    def _sample_stage(self, reader: AnswerReader) -> SampleStage:
        return SampleStage(
            store=self.store,
            reader=reader,
            assembly=self.assembly,
            quarantine=Quarantine(store=self.store, counters=self.shared.counters, clock=self.clock),
            live=self.live,
            sampling_store=self.store.sampling,
            counters=self.shared.counters,
            clock=self.clock,
            queued=self.queued,
            tracer=self.shared.tracer,
        )

    def _evaluator(self, reader: AnswerReader) -> EvaluateStage:
        watch = LowScoreWatch(sampling_store=self.store.sampling, counters=self.shared.counters)
        return EvaluateStage(
            store=self.store,
            reader=reader,
            live=self.live,
            watch=watch,
            sinks=tuple(self.shared.sinks),
            openinference_sinks=frozenset(
                export.endpoint for export in self.config.export if export.reads_openinference
            ),
            counters=self.shared.counters,
            coverage=self.shared.coverage,
            scores=self.shared.scores,
            logs_verdicts=self.config.telemetry.verdict_log,
            clock=self.clock,
            done=self.done,
            tracer=self.shared.tracer,
            holds=self.holds,
        )

    def _sessions(self) -> SessionStage:
        return SessionStage(
            store=self.store,
            live=self.live,
            sinks=tuple(self.shared.sinks),
            counters=self.shared.counters,
            clock=self.clock,
            done=self.done,
        )

    def _deliverers(self) -> Iterator[DeliverStage]:
        for endpoint, sink in (*self.shared.sinks.items(), *self.shared.log_sinks.items()):
            yield DeliverStage(
                store=self.store,
                sink=sink,
                endpoint=endpoint,
                counters=self.shared.counters,
                clock=self.clock,
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
    floor, limit, near = config.tenant_floor, config.limit, config.neighbours
    return Sampler(
        plan=config.plan(),
        fairness=TenantFloor(answers=floor) if floor else None,
        limits=Limits(answers=limit.answers, per_tenant=limit.per_tenant) if limit else None,
        follow_ups=FollowUps(_follow_up_policy(near)) if near else None,
    )


def _follow_up_policy(config: FollowUpConfig) -> FollowUpPolicy:
    return FollowUpPolicy(
        below=config.below,
        metric=config.metric,
        relations=config.same,
        most=config.most,
    )
