"""A collector put together: what its configuration names is opened, and its stages are wired."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.clock import SystemClock
from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.answers import AnswerReader
from ragtrace_collector.assemble import Assembly
from ragtrace_collector.bringing_back import LowScoreWatch
from ragtrace_collector.collector import Collector
from ragtrace_collector.config import (
    CollectorConfig,
)
from ragtrace_collector.delivering import Deliverer
from ragtrace_collector.evaluating import Evaluator
from ragtrace_collector.gate import Gate, open_gate
from ragtrace_collector.guarding import guards_of
from ragtrace_collector.holding import Holder, HoldLimits
from ragtrace_collector.in_force import InForce, Tenure
from ragtrace_collector.intake import Intake, Room
from ragtrace_collector.judging import open_judging
from ragtrace_collector.operations.accounts import account_routes
from ragtrace_collector.operations.outgoing import WatchedSink
from ragtrace_collector.operations.running import Operations
from ragtrace_collector.operations.tracing import open_tracer
from ragtrace_collector.operations.vitals import Vitals
from ragtrace_collector.oversized import SpanLimits
from ragtrace_collector.policies import (
    assemble_policy_of,
    attach_options_of,
    forward_to,
    ladder_of,
    nanoseconds,
    open_export,
    release_to,
    sampler_of,
)
from ragtrace_collector.settling import Settler
from ragtrace_collector.steady import SteadyClock
from ragtrace_collector.store.budget import BudgetBook
from ragtrace_collector.store.port import Holding, WorkStore
from ragtrace_collector.store.sampling import SamplingBook
from ragtrace_collector.store.sealing import open_sealing
from ragtrace_collector.store.sqlite import SqliteStore
from ragtrace_collector.telemetry import Counters

__all__ = ["open_collector"]

_REQUESTS_AT_ONCE: Final = 8
"""Of the largest size; of the usual size, hundreds."""


@asynccontextmanager
async def open_collector(
    config: CollectorConfig,
    *,
    clock: Clock | None = None,
    steady_ns: Callable[[], int] | None = None,
) -> AsyncIterator[Collector]:
    """Open the store, the judge and the sinks; close them in the end.

    ``steady_ns`` tells nanoseconds since whenever, and is never set: by it spans are waited for. Without
    it, a ``clock`` that is given does.

    Raises:
        ConfigError: something that the configuration names cannot be used.
    """
    steady_ns = steady_ns or (clock.now_ns if clock else time.monotonic_ns)
    clock = clock or SystemClock()
    gate = open_gate(config, clock)
    async with AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(open_tracer(config.telemetry))
        sinks = {}
        for export in config.export:
            sinks[export.endpoint] = WatchedSink(open_export(export), tracer)
            stack.push_async_callback(sinks[export.endpoint].aclose)
        store = await SqliteStore.open(
            config.store.path,
            max_bytes=config.store.max_bytes,
            forward_to=release_to(config),
            sealing=open_sealing([key.get_secret_value() for key in config.store.encryption_keys]),
        )
        stack.push_async_callback(store.aclose)
        clock = SteadyClock(clock, not_before_ns=await store.latest_ns())
        guards = guards_of(config, clock=clock, book=store.budget)
        in_force = InForce(
            config=config,
            tenure=await Tenure.begin(open_judging(config, guards)),
            sampler=sampler_of(config.sample),
        )
        stack.push_async_callback(lambda: in_force.tenure.retire())
        collector = _assemble(
            in_force,
            store=store,
            sampling=store.sampling,
            budget=store.budget,
            sinks=sinks,
            gate=gate,
            clock=clock,
            steady_ns=steady_ns,
            tracer=tracer,
        )
        await collector.recover()
        yield collector


def _assemble(
    in_force: InForce,
    *,
    store: WorkStore,
    sampling: SamplingBook,
    budget: BudgetBook,
    sinks: Mapping[str, SpanSink],
    gate: Gate,
    clock: Clock,
    steady_ns: Callable[[], int],
    tracer: Tracer,
) -> Collector:
    """Wire the stages together."""
    config = in_force.config
    counters, queued, done = Counters(), asyncio.Event(), asyncio.Event()
    holds = config.attach.mode == "hold"
    holder = Holder(
        store=store,
        limits=HoldLimits(
            timeout_ns=nanoseconds(config.attach.hold_timeout), most_bytes=config.attach.hold_max_bytes
        ),
        is_judge_away=lambda: in_force.is_judge_away,
        counters=counters,
        clock=clock,
        released=done,
    )
    reader = AnswerReader(store=store, counters=counters, mapping=config.extract.mapping.opened())
    assembly = Assembly(assemble_policy_of(config), steady_ns=steady_ns)
    vitals = Vitals(
        store=store,
        counters=counters,
        clock=clock,
        store_limit_bytes=config.store.max_bytes,
        in_force=in_force,
        sink_names={endpoint: sink.name for endpoint, sink in sinks.items()},
    )
    return Collector(
        in_force=in_force,
        budget=budget,
        store=store,
        assembly=assembly,
        counters=counters,
        clock=clock,
        gate=gate,
        operations=Operations(
            config=config.telemetry,
            vitals=vitals,
            gate=gate,
            accounts=account_routes(in_force, clock=clock, access=gate.access),
        ),
        intake=Intake(
            store=store,
            assembly=assembly,
            sampler=in_force.sampler,
            forward_to=forward_to(config),
            counters=counters,
            clock=clock,
            received=done,
            room=Room(_REQUESTS_AT_ONCE * config.receive.max_message_bytes, counters),
            span_limits=SpanLimits(**config.receive.limits.model_dump()),
            holding=holder.holding if holds else lambda: Holding.OFF,
        ),
        holder=holder,
        settler=Settler(
            store=store,
            reader=reader,
            assembly=assembly,
            sampler=in_force.sampler,
            max_revisions=config.assemble.max_revisions,
            book=sampling,
            counters=counters,
            clock=clock,
            queued=queued,
            tracer=tracer,
        ),
        evaluator=Evaluator(
            store=store,
            reader=reader,
            judging=in_force.tenure.judging,
            watch=LowScoreWatch(sampler=in_force.sampler, book=sampling, counters=counters),
            attach=attach_options_of(config),
            sinks=tuple(sinks),
            ladder=ladder_of(config),
            attempt_s=config.evaluate.job_timeout.total_seconds(),
            counters=counters,
            clock=clock,
            done=done,
            tracer=tracer,
            holds=holds,
        ),
        deliverers=tuple(
            Deliverer(store=store, sink=sink, endpoint=endpoint, counters=counters, clock=clock)
            for endpoint, sink in sinks.items()
        ),
    )
