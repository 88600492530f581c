"""Builds a collector: opens what the configuration names, and wires the stages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import Tracer

from ragtrace.clock import SystemClock
from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.alerts.notices import AnswerLinks, drift_notices
from ragtrace_collector.alerts.sinks import NoticeSink
from ragtrace_collector.alerts.stage import AlertStage
from ragtrace_collector.alerts.watch import SloWatch
from ragtrace_collector.assemble.answers import AnswerReader
from ragtrace_collector.assemble.open_traces import Assembly
from ragtrace_collector.assemble.quarantine import Quarantine
from ragtrace_collector.assemble.sweep import Sweeper
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.deliver.hold import HoldLimits, HoldStage
from ragtrace_collector.deliver.observed_sink import ObservedSink
from ragtrace_collector.deliver.outbox import DeliverStage
from ragtrace_collector.drift.check import check_anchors
from ragtrace_collector.drift.stage import DriftStage
from ragtrace_collector.evaluate.low_scores import LowScoreWatch
from ragtrace_collector.evaluate.stage import EvaluateStage
from ragtrace_collector.judge.evaluator import old_prices, open_evaluator
from ragtrace_collector.judge.guard import guards_of
from ragtrace_collector.judge.live import Live, LiveConfig, SharedEvaluator
from ragtrace_collector.operations.accounts import account_routes
from ragtrace_collector.operations.runtime import Operations
from ragtrace_collector.operations.vitals import Vitals
from ragtrace_collector.receive.intake import Intake
from ragtrace_collector.receive.memory import RequestMemory
from ragtrace_collector.receive.span_limits import SpanLimits
from ragtrace_collector.sample.stage import SampleStage
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.service.from_config import (
    assemble_policy_of,
    forward_to,
    open_export,
    release_to,
    sampler_of,
)
from ragtrace_collector.service.page import UiService
from ragtrace_collector.service.pipeline import StorePipeline
from ragtrace_collector.service.topics import check_kafka, open_kafka
from ragtrace_collector.sessions.stage import SessionStage
from ragtrace_collector.store.open import OpenStore, open_store
from ragtrace_collector.store.port import HoldMode, WorkStore
from ragtrace_collector.telemetry.clock import SteadyClock
from ragtrace_collector.telemetry.counters import Counters
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.telemetry.scores import Scores
from ragtrace_collector.telemetry.tracing import open_tracer
from ragtrace_collector.web.auth import ReceiverAuth, open_auth

if TYPE_CHECKING:  # its client is an extra
    from ragtrace_collector.receive.kafka import KafkaReceiver

log = logging.getLogger("ragtrace.collector")

_REQUESTS_AT_ONCE: Final = 8
"""Of the largest size; of the usual size, hundreds."""
_UNREAD_AT_ONCE: Final = 4
"""Messages over gRPC that are being received, each of which may turn out to be of the largest size."""


@asynccontextmanager
async def open_collector(
    config: CollectorConfig,
    *,
    clock: Clock | None = None,
    monotonic_ns: Callable[[], int] | None = None,
    open_store: OpenStore = open_store,
) -> AsyncIterator[Collector]:
    """Open the store, the judge and the sinks; close them in the end.

    ``monotonic_ns`` is the clock for waiting times; nothing ever sets it. The default is ``clock``, if given,
    else the machine's monotonic clock. ``open_store`` opens the work store.

    Raises:
        ConfigError: something that the configuration names cannot be used.
    """
    monotonic_ns = monotonic_ns or (clock.now_ns if clock else time.monotonic_ns)
    clock = clock or SystemClock()
    auth = open_auth(config, clock)
    check_anchors(config)
    check_kafka(config)
    async with AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(
            open_tracer(config.telemetry.otlp_endpoint, ratio=config.telemetry.trace_ratio)
        )
        sinks = _open_sinks(config, tracer, stack)
        notice_sinks = _open_notice_sinks(config, clock, stack)
        store = await open_store(config.store, forward_to=release_to(config), tenants=_tenants(config, auth))
        stack.push_async_callback(store.aclose)
        clock = SteadyClock(clock, not_before_ns=await store.latest_ns())
        guards = guards_of(config, clock=clock, spend_ledger=store.budget)
        evaluator = await SharedEvaluator.begin(open_evaluator(config, guards))
        async with AsyncExitStack() as undone:
            undone.push_async_callback(evaluator.retire)
            live = LiveConfig(Live.of(config, evaluator, sampler_of(config.sample)))
            undone.pop_all()
        stack.push_async_callback(lambda: live.now.shared_evaluator.retire())
        for line in old_prices(evaluator.guarded, now_ns=clock.now_ns()):
            log.warning("%s", line, extra=event("prices_old"))
        parts = _Parts(
            live=live,
            store=store,
            sinks=sinks,
            notice_sinks=notice_sinks,
            auth=auth,
            clock=clock,
            tracer=tracer,
            assembly=Assembly(assemble_policy_of(config), monotonic_ns=monotonic_ns),
            scores=_open_scores(config, clock),
        )
        collector = parts.collector()
        await collector.pipeline.recover()
        yield collector


def _tenants(config: CollectorConfig, auth: ReceiverAuth) -> frozenset[str]:
    kafka = config.receive.kafka
    return auth.access.tenants | ({kafka.tenant} if kafka and kafka.tenant else set())


def _open_scores(config: CollectorConfig, clock: Clock) -> Scores | None:
    chosen = config.telemetry.scores
    return Scores(clock=clock, by=chosen.by, most_values=chosen.max_values) if chosen.enabled else None


def _open_sinks(config: CollectorConfig, tracer: Tracer, stack: AsyncExitStack) -> Mapping[str, SpanSink]:
    sinks = {}
    for export in config.export:
        sinks[export.endpoint] = ObservedSink(open_export(export), tracer)
        stack.push_async_callback(sinks[export.endpoint].aclose)
    return sinks


def _open_notice_sinks(
    config: CollectorConfig, clock: Clock, stack: AsyncExitStack
) -> Mapping[str, NoticeSink]:
    sinks = {}
    for sink in config.alerts.to:
        sinks[sink.key] = NoticeSink(config=sink, clock=clock)
        stack.push_async_callback(sinks[sink.key].aclose)
    return sinks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What the stages share, and how each stage is built from it."""

    live: LiveConfig
    store: WorkStore
    sinks: Mapping[str, SpanSink]
    notice_sinks: Mapping[str, NoticeSink]
    auth: ReceiverAuth
    clock: Clock
    tracer: Tracer
    assembly: Assembly
    counters: Counters = field(default_factory=Counters)
    scores: Scores | None = None
    """What verdicts add up to, if the metrics tell it."""
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

    def collector(self) -> Collector:
        """Wire the stages together."""
        holder = self._holder()
        drift = DriftStage(
            live=self.live,
            store=self.store,
            clock=self.clock,
            notices=partial(drift_notices, sinks=tuple(self.notice_sinks)),
        )
        alerts = self._alerts(drift)
        intake = self._intake(holder)
        kafka = open_kafka(
            self.config,
            intake=intake,
            store=self.store,
            access=self.auth.access,
            counters=self.counters,
            clock=self.clock,
        )
        return Collector(
            configuration=self.live,
            pipeline=self._pipeline(holder, intake, drift, alerts),
            counters=self.counters,
            clock=self.clock,
            auth=self.auth,
            operations=(operations := self._operations(alerts, drift, kafka)),
            ui=UiService(
                config=self.config, auth=self.auth, status=operations.vitals.status, clock=self.clock
            ),
            kafka=kafka,
        )

    def _pipeline(
        self, holder: HoldStage, intake: Intake, drift: DriftStage, alerts: AlertStage
    ) -> StorePipeline:
        reader = AnswerReader(store=self.store, counters=self.counters)
        return StorePipeline(
            configuration=self.live,
            store=self.store,
            assembly=self.assembly,
            counters=self.counters,
            clock=self.clock,
            intake=intake,
            holder=holder,
            sample_stage=self._sample_stage(reader),
            sweeper=Sweeper(store=self.store, assembly=self.assembly, counters=self.counters),
            evaluator=self._evaluator(reader),
            deliverers=tuple(self._deliverers()),
            drift=drift,
            alerts=alerts,
            sessions=self._sessions(),
        )

    def _holder(self) -> HoldStage:
        attach = self.config.attach
        return HoldStage(
            store=self.store,
            limits=HoldLimits(timeout_ns=nanoseconds(attach.hold_timeout), most_bytes=attach.hold_max_bytes),
            is_judge_away=lambda: self.live.now.is_judge_unavailable,
            counters=self.counters,
            clock=self.clock,
            released=self.done,
        )

    def _operations(self, alerts: AlertStage, drift: DriftStage, kafka: KafkaReceiver | None) -> Operations:
        vitals = Vitals(
            store=self.store,
            counters=self.counters,
            clock=self.clock,
            store_limit_bytes=self.config.store.max_bytes,
            live=self.live,
            drift=drift.state,
            alerts=alerts.active,
            kafka=(lambda: kafka.state) if kafka else None,
            has_listeners=bool(self.config.receive.grpc or self.config.receive.http),
            sink_names={key: sink.name for key, sink in (*self.sinks.items(), *self.notice_sinks.items())},
        )
        accounts = account_routes(
            self.live, self.store, self.store.answers, clock=self.clock, access=self.auth.access
        )
        return Operations(
            config=self.config.telemetry, vitals=vitals, auth=self.auth, scores=self.scores, accounts=accounts
        )

    def _intake(self, holder: HoldStage) -> Intake:
        receive = self.config.receive
        return Intake(
            store=self.store,
            assembly=self.assembly,
            live=self.live,
            forward_to=forward_to(self.config),
            counters=self.counters,
            clock=self.clock,
            received=self.done,
            room=RequestMemory(
                _REQUESTS_AT_ONCE * receive.max_message_bytes, self.counters, most_unread=_UNREAD_AT_ONCE
            ),
            span_limits=SpanLimits(**receive.limits.model_dump()),
            holding=holder.holding if self.holds else lambda: HoldMode.OFF,
        )

    def _sample_stage(self, reader: AnswerReader) -> SampleStage:
        return SampleStage(
            store=self.store,
            reader=reader,
            assembly=self.assembly,
            quarantine=Quarantine(store=self.store, counters=self.counters, clock=self.clock),
            live=self.live,
            sampling_store=self.store.sampling,
            counters=self.counters,
            clock=self.clock,
            queued=self.queued,
            tracer=self.tracer,
        )

    def _evaluator(self, reader: AnswerReader) -> EvaluateStage:
        watch = LowScoreWatch(sampling_store=self.store.sampling, counters=self.counters)
        return EvaluateStage(
            store=self.store,
            reader=reader,
            live=self.live,
            watch=watch,
            sinks=tuple(self.sinks),
            openinference_sinks=frozenset(
                export.endpoint for export in self.config.export if export.reads_openinference
            ),
            counters=self.counters,
            scores=self.scores,
            logs_verdicts=self.config.telemetry.verdict_log,
            clock=self.clock,
            done=self.done,
            tracer=self.tracer,
            holds=self.holds,
        )

    def _sessions(self) -> SessionStage:
        return SessionStage(
            store=self.store,
            live=self.live,
            sinks=tuple(self.sinks),
            counters=self.counters,
            clock=self.clock,
            done=self.done,
        )

    def _alerts(self, drift: DriftStage) -> AlertStage:
        config = self.config
        return AlertStage(
            store=self.store,
            watches=tuple(SloWatch.of(slo, config.sample) for slo in config.slo),
            sinks=tuple(self.notice_sinks),
            links=AnswerLinks(page_url=config.ui.public_url or "", traces=config.ui.links),
            clock=self.clock,
            done=self.done,
            is_judge_steady=drift.is_judge_steady,
        )

    def _deliverers(self) -> Iterator[DeliverStage]:
        for key, notice_sink in self.notice_sinks.items():
            yield DeliverStage(
                store=self.store,
                sink=notice_sink,
                endpoint=key,
                counters=self.counters,
                clock=self.clock,
                most_at_once=1,  # notices are JSON documents, which nothing merges
            )
        for endpoint, sink in self.sinks.items():
            yield DeliverStage(
                store=self.store, sink=sink, endpoint=endpoint, counters=self.counters, clock=self.clock
            )
