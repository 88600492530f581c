"""Builds a collector, opens what the configuration names, wires the stages, and runs it as a process."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import Tracer

from ragtrace.answers.port import AnswerFilter
from ragtrace.budget import SpendLedger
from ragtrace.clock import SystemClock
from ragtrace.ports import Clock, SpanSink
from ragtrace.process import settle_memory
from ragtrace_collector.assemble import Assembly
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.deliver import ObservedSink
from ragtrace_collector.drift import check_anchors
from ragtrace_collector.judge import Live, LiveConfig, SharedEvaluator, guards_of, old_prices, open_evaluator
from ragtrace_collector.ledger import Coverage
from ragtrace_collector.operations.pages import account_routes
from ragtrace_collector.operations.signals import Reloads, Signals
from ragtrace_collector.operations.vitals import Operations, Vitals
from ragtrace_collector.receive.intake import RequestMemory
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.service.from_config import (
    assemble_policy_of,
    forward_logs_to,
    open_export,
    open_logs_export,
    release_to,
    sampler_of,
)
from ragtrace_collector.service.page import UiService
from ragtrace_collector.service.pipeline import Role, StorePipeline
from ragtrace_collector.service.stages import SharedParts, StageParts
from ragtrace_collector.service.topics import check_kafka, open_kafka
from ragtrace_collector.store.open import open_store
from ragtrace_collector.telemetry.counters import CalendarClock, Counters, SteadyClock
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
    role: Role = Role.ALL,
    shares_ports: bool = False,
    clock: Clock | None = None,
    monotonic_ns: Callable[[], int] | None = None,
) -> AsyncIterator[Collector]:
    """Open the store, the judge and the sinks; close them in the end.

    With ``shares_ports``, other processes may listen on the same addresses: the kernel spreads what comes.

    ``monotonic_ns`` is the clock for waiting times; nothing ever sets it. The default is ``clock``, if given,
    else the machine's monotonic clock.

    Raises:
        ConfigError: something that the configuration names cannot be used.
    """
    monotonic_ns = monotonic_ns or (clock.now_ns if clock else time.monotonic_ns)
    clock = clock or SystemClock()
    auth = open_auth(config, clock)
    check_anchors(config)
    check_kafka(config)
    async with AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(open_tracer(config.telemetry.otlp_endpoint))
        shared = _open_shared(config, SteadyClock(clock), tracer, stack)
        store = await open_store(config.store, forward_to=release_to(config))
        stack.push_async_callback(store.aclose)
        newest = [answer.time_ns for answer in (await store.answers.page(AnswerFilter(), limit=1)).answers]
        calendar = CalendarClock(clock, monotonic_ns, newest_ns=newest[0] if newest else None)
        clock = SteadyClock(clock, not_before_ns=await store.latest_ns())
        live = LiveConfig(await _open_live(config, role, clock, store.budget))
        stack.push_async_callback(lambda: live.now.shared_evaluator.retire())
        pipeline = StageParts(
            shared=shared,
            live=live,
            role=role,
            store=store,
            clock=clock,
            calendar=calendar,
            assembly=Assembly(assemble_policy_of(config), monotonic_ns=monotonic_ns),
        ).pipeline()
        kafka = open_kafka(
            config,
            intake=pipeline.intake,
            store=store,
            access=auth.access,
            counters=shared.counters,
            clock=clock,
        )
        await pipeline.recover()
        yield _collector(
            config, pipeline, live, shared, auth=auth, clock=clock, kafka=kafka, shares_ports=shares_ports
        )


async def _open_live(config: CollectorConfig, role: Role, clock: Clock, spend_ledger: SpendLedger) -> Live:
    """Open the judge behind its guards, and put the first snapshot together."""
    guards = guards_of(config, clock=clock, spend_ledger=spend_ledger)
    evaluator = await SharedEvaluator.begin(open_evaluator(role.judging(config), guards))
    async with AsyncExitStack() as undone:
        undone.push_async_callback(evaluator.retire)
        live = Live.of(config, evaluator, sampler_of(config.sample))
        undone.pop_all()
    for line in old_prices(evaluator.guarded, now_ns=clock.now_ns()):
        log.warning("%s", line, extra=event("prices_old"))
    return live


def _open_shared(config: CollectorConfig, clock: Clock, tracer: Tracer, stack: AsyncExitStack) -> SharedParts:
    counters = Counters()
    return SharedParts(
        sinks=_opened({each.endpoint: open_export(each) for each in config.export}, tracer, stack),
        log_sinks=_opened(
            {name: open_logs_export(each) for name, each in forward_logs_to(config).items()}, tracer, stack
        ),
        tracer=tracer,
        counters=counters,
        room=RequestMemory(
            _REQUESTS_AT_ONCE * config.receive.max_message_bytes, counters, most_unread=_UNREAD_AT_ONCE
        ),
        coverage=Coverage(clock=clock),
        scores=_open_scores(config, clock),
    )


def _collector(
    config: CollectorConfig,
    pipeline: StorePipeline,
    live: LiveConfig,
    shared: SharedParts,
    *,
    auth: ReceiverAuth,
    clock: Clock,
    kafka: KafkaReceiver | None,
    shares_ports: bool,
) -> Collector:
    """Put a process together around its pipeline."""
    vitals = Vitals(
        store=pipeline.store,
        counters=shared.counters,
        clock=clock,
        store_limit_bytes=config.store.max_bytes,
        live=live,
        coverage=shared.coverage,
        drift=pipeline.drift.state,
        kafka=(lambda: kafka.state) if kafka else None,
        has_listeners=config.has_listeners,
        judges=pipeline.role is not Role.INGEST,
        sink_names={
            **{key: sink.name for key, sink in shared.sinks.items()},
            **{key: f"forward:logs:{sink.name}" for key, sink in shared.log_sinks.items()},
        },
    )
    accounts = account_routes(live, pipeline.store, pipeline.store.answers, clock=clock, access=auth.access)
    return Collector(
        configuration=live,
        pipeline=pipeline,
        counters=shared.counters,
        clock=clock,
        auth=auth,
        operations=Operations(
            config=config.telemetry, vitals=vitals, auth=auth, scores=shared.scores, accounts=accounts
        ),
        ui=UiService(config=config, auth=auth, status=vitals.status, clock=pipeline.calendar),
        kafka=kafka,
        shares_ports=shares_ports,
    )


def _open_scores(config: CollectorConfig, clock: Clock) -> Scores | None:
    by = config.telemetry.scores_by
    return Scores(clock=clock, by=by) if by else None


def _opened(sinks: Mapping[str, SpanSink], tracer: Tracer, stack: AsyncExitStack) -> Mapping[str, SpanSink]:
    for sink in sinks.values():
        stack.push_async_callback(sink.aclose)
    return {name: ObservedSink(sink, tracer) for name, sink in sinks.items()}


CANCEL_S: Final = 10
"""How long after ``drain_timeout`` the process is killed, if what it cancelled has not ended."""


async def run_collector(
    config: CollectorConfig,
    *,
    role: Role = Role.ALL,
    shares_ports: bool = False,
    reread: Callable[[], CollectorConfig] | None = None,
    on_ready: Callable[[Collector], None] | None = None,
) -> Mapping[str, int]:
    """Serve until SIGINT or SIGTERM, shut down in order, and return what the store counts at the end.

    ``on_ready`` is called once, when the receivers listen; ``reread`` at each SIGHUP, and returns the
    configuration to follow from then on.

    Raises:
        ConfigError: an address, path, judge, metric or endpoint cannot be used.
        KeyboardInterrupt: a second signal came, and it left at once.
    """
    settle_memory()
    signals = Signals(longest_stop_s=config.drain_timeout.total_seconds() + CANCEL_S)
    with signals.handled():
        async with open_collector(config, role=role, shares_ports=shares_ports) as collector:
            reloads = Reloads(asked=signals.reload, read=reread) if reread else None
            await collector.serve(signals.stop, on_ready=on_ready, reloads=reloads)
            return (await collector.pipeline.store.ledger()).by_name()
