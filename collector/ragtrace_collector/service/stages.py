"""Builds the stages over one work store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opentelemetry.trace import Tracer

from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.assemble import AnswerReader, Assembly, Quarantine, Sweeper
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.deliver import DeliverStage, HoldLimits, HoldStage
from ragtrace_collector.drift import DriftStage
from ragtrace_collector.evaluate import EvaluateStage, LowScoreWatch
from ragtrace_collector.judge import LiveConfig
from ragtrace_collector.ledger import Coverage
from ragtrace_collector.receive.intake import Intake, RequestMemory
from ragtrace_collector.sample import SampleStage
from ragtrace_collector.service.from_config import forward_to
from ragtrace_collector.service.pipeline import Role, StorePipeline
from ragtrace_collector.sessions import SessionStage
from ragtrace_collector.store.records import HoldMode
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters
from ragtrace_collector.telemetry.scores import Scores


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
