"""The collector as a process: starts the stages in one task group, and ends them in order.

The shut-down law: stop accepting, settle what is complete, drain until a deadline, cancel, close the sinks,
and say what is left on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.backends import open_sink
from ragtrace.clock import SystemClock
from ragtrace.errors import RagtraceError
from ragtrace.ports import Clock, SpanSink
from ragtrace.traces.attach import AttachOptions
from ragtrace_collector.answers import AnswerReader
from ragtrace_collector.assemble import AssemblePolicy, Assembly
from ragtrace_collector.bringing_back import LowScoreWatch
from ragtrace_collector.config import (
    CollectorConfig,
    ExportConfig,
    NeighboursConfig,
    SampleConfig,
)
from ragtrace_collector.delivering import Deliverer
from ragtrace_collector.evaluating import Evaluator, PartialEvaluations
from ragtrace_collector.gate import Gate, open_gate
from ragtrace_collector.guarding import guards_of
from ragtrace_collector.holding import Holder, HoldLimits
from ragtrace_collector.in_force import InForce, Tenure
from ragtrace_collector.intake import Intake, Room
from ragtrace_collector.judging import open_judging
from ragtrace_collector.ladder import Ladder
from ragtrace_collector.operations.accounts import account_routes
from ragtrace_collector.operations.health import Phase
from ragtrace_collector.operations.logs import event, place_of
from ragtrace_collector.operations.outgoing import WatchedSink
from ragtrace_collector.operations.reloading import Reloads, digest_of, refuse_what_needs_a_restart
from ragtrace_collector.operations.running import Operations
from ragtrace_collector.operations.signals import Signals
from ragtrace_collector.operations.systemd import notify_ready, notify_reloading, notify_stopping
from ragtrace_collector.operations.tracing import open_tracer
from ragtrace_collector.operations.vitals import Vitals
from ragtrace_collector.oversized import SpanLimits
from ragtrace_collector.receivers.grpc import serve_grpc
from ragtrace_collector.receivers.http import http_app
from ragtrace_collector.receivers.listening import HttpServer, open_socket
from ragtrace_collector.sampling import Fairness, Limits, NeighbourPolicy, Neighbours, Sampler
from ragtrace_collector.settling import Settler
from ragtrace_collector.stages import Step, run_stage
from ragtrace_collector.steady import SteadyClock
from ragtrace_collector.store.budget import BudgetBook
from ragtrace_collector.store.port import Holding, StoreUnavailable, WorkStore
from ragtrace_collector.store.sampling import SamplingBook
from ragtrace_collector.store.sealing import open_sealing
from ragtrace_collector.store.sqlite import SqliteStore
from ragtrace_collector.telemetry import Counters

__all__ = ["Collector", "check_config", "run_collector", "sampler_of"]

log = logging.getLogger("ragtrace.collector")

_SETTLE_PAUSE_S: Final = 0.1
_WORK_PAUSE_S: Final = 1.0
_EXPIRE_PAUSE_S: Final = 30.0
_GRPC_GRACE_S: Final = 2.0
_REQUESTS_AT_ONCE: Final = 8
"""Of the largest size; of the usual size, hundreds."""


async def run_collector(
    config: CollectorConfig,
    *,
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
    signals = Signals(longest_stop_s=(config.drain_timeout + config.cancel_timeout).total_seconds())
    with signals.handled():
        async with Collector.open(config) as collector:
            reloads = Reloads(asked=signals.reload, read=reread) if reread else None
            await collector.serve(signals.stop, on_ready=on_ready, reloads=reloads)
            return (await collector.store.ledger()).by_name()


@dataclass(slots=True, kw_only=True)
class Collector:
    """One collector process: its stages, and what they share."""

    in_force: InForce
    store: WorkStore
    budget: BudgetBook
    assembly: Assembly
    settler: Settler
    evaluator: Evaluator
    holder: Holder
    deliverers: tuple[Deliverer, ...]
    intake: Intake
    counters: Counters
    clock: Clock
    gate: Gate
    operations: Operations
    grpc_port: int | None = None
    """The port in use, once serving: of interest where the configuration says port 0."""
    http_port: int | None = None

    @property
    def config(self) -> CollectorConfig:
        """The configuration in force."""
        return self.in_force.config

    @property
    def vitals(self) -> Vitals:
        """How it is: what its pages and metrics tell."""
        return self.operations.vitals

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
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
                sinks[export.endpoint] = WatchedSink(_open_sink(export), tracer)
                stack.push_async_callback(sinks[export.endpoint].aclose)
            store = await SqliteStore.open(
                config.store.path,
                max_bytes=config.store.max_bytes,
                forward_to=_release_to(config),
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

    async def recover(self) -> None:
        """Look again at the traces that were open when the last process ended."""
        if self.config.attach.mode != "hold":  # it was, before
            await self.holder.release_all()
        await self.settler.recall()
        for trace_id in await self.store.unsettled():
            self.assembly.add(trace_id, (), reopened=True)

    async def reload(self, config: CollectorConfig) -> None:
        """Follow another configuration from the next answer on; what is under way ends by the one before.

        Raises:
            ConfigError: it cannot be used, or needs a restart; nothing has changed.
        """
        refuse_what_needs_a_restart(self.config, config)
        guards = guards_of(config, clock=self.clock, book=self.budget)
        tenure, sampler = await Tenure.begin(open_judging(config, guards)), sampler_of(config.sample)
        settler = _following(self.settler, config, sampler)
        async with AsyncExitStack() as undone:
            undone.push_async_callback(tenure.retire)
            await settler.recall()
            self.gate.reload(config.receive)
            undone.pop_all()
        retired = self.in_force.tenure
        self.in_force.config, self.in_force.tenure, self.in_force.sampler = config, tenure, sampler
        self.settler, self.evaluator = settler, _judging_by(self.evaluator, self.in_force)
        self.intake.follow(sampler)
        self.assembly.follow(_assemble_policy(config))
        logging.getLogger().setLevel(config.log_level.upper())
        await retired.retire()

    async def _follow(self, reloads: Reloads) -> None:
        """Reload whenever that is asked for; where it cannot be done, say why and go on as before."""
        while True:
            await reloads.asked.wait()
            reloads.asked.clear()
            notify_reloading()
            try:
                await self.reload(reloads.read())
            except Exception as exc:  # noqa: BLE001 -- the wall of one reload: plug-ins are loaded by it
                self.vitals.reloads["refused"] += 1
                why = exc if isinstance(exc, RagtraceError) else place_of(exc)
                log.error("the configuration stays as it was: %s", why, extra=event("reload_refused"))  # noqa: TRY400
            else:
                self.vitals.reloads["applied"] += 1
                digest = digest_of(self.config)
                log.info("configuration %s is in force", digest, extra=event("reloaded", config=digest))
            notify_ready(f"judging with {self.config.judge.use}")

    async def serve(
        self,
        stop: asyncio.Event,
        *,
        on_ready: Callable[[Collector], None] | None = None,
        reloads: Reloads | None = None,
    ) -> None:
        """Run until ``stop`` is set, then drain. ``reloads`` says when to read the configuration again."""
        async with self.operations.opened(), AsyncExitStack() as receivers:
            await self._start_grpc(receivers)
            http = self._bind_http()
            async with asyncio.TaskGroup() as tasks:
                if http is not None:
                    receivers.callback(http.stop)
                    tasks.create_task(http.serve(), name="http")
                self.operations.start(tasks)
                following = tasks.create_task(self._follow(reloads)) if reloads else None
                await self._work(tasks, receivers, stop, on_ready)
                if following is not None:
                    following.cancel()
                self.operations.stop()
        await self._report()

    async def _work(
        self,
        tasks: asyncio.TaskGroup,
        receivers: AsyncExitStack,
        stop: asyncio.Event,
        on_ready: Callable[[Collector], None] | None,
    ) -> None:
        drained = asyncio.Event()
        stages = self._start_stages(tasks, drained)
        self._say_serving(on_ready)
        await stop.wait()
        self.vitals.phase = Phase.STOPPING
        notify_stopping()
        log.info("stopping: no new spans are taken", extra=event("stopping"))
        await receivers.aclose()
        await self._drain()
        drained.set()
        await asyncio.wait(stages, timeout=_WORK_PAUSE_S)
        for stage in stages:
            stage.cancel()

    def _say_serving(self, on_ready: Callable[[Collector], None] | None) -> None:
        self.vitals.phase = Phase.SERVING
        if on_ready is not None:
            on_ready(self)
        notify_ready(f"judging with {self.config.judge.use}")
        log.info(
            "listening: grpc %s, http %s, pages %s",
            self.grpc_port,
            self.http_port,
            self.operations.port,
            extra=event("listening", config=digest_of(self.config)),
        )

    def _bind_http(self) -> HttpServer | None:
        if self.config.receive.http is None:
            return None
        listening = open_socket(self.config.receive.http)
        self.http_port = listening.getsockname()[1]
        app = http_app(
            self.intake,
            status=self.vitals.status,
            access=self.gate.access,
            counters=self.counters,
            max_message_bytes=self.config.receive.max_message_bytes,
        )
        return HttpServer(app, listening, certificate=self.gate.certificate)

    async def _start_grpc(self, receivers: AsyncExitStack) -> None:
        if self.config.receive.grpc is None:
            return
        server, self.grpc_port = await serve_grpc(
            self.intake,
            self.config.receive.grpc,
            access=self.gate.access,
            certificate=self.gate.certificate,
            max_message_bytes=self.config.receive.max_message_bytes,
        )
        receivers.push_async_callback(server.stop, _GRPC_GRACE_S)

    def _start_stages(self, tasks: asyncio.TaskGroup, stop: asyncio.Event) -> list[asyncio.Task[None]]:
        queued, done, never = self.settler.queued, self.evaluator.done, asyncio.Event()
        stages = [
            tasks.create_task(
                self._stage(self._settle, wake=never, stop=stop, pause_s=_SETTLE_PAUSE_S),
                name="settle",
            ),
            tasks.create_task(
                self._stage(self._expire, wake=never, stop=stop, pause_s=_EXPIRE_PAUSE_S), name="expire"
            ),
        ]
        stages.append(
            tasks.create_task(
                self._stage(self._throttle, wake=never, stop=stop, pause_s=_WORK_PAUSE_S), name="throttle"
            )
        )
        if self.config.attach.mode == "hold":
            release = self._stage(self.holder.step, wake=never, stop=stop, pause_s=_SETTLE_PAUSE_S)
            stages.append(tasks.create_task(release, name="release"))
        stages += [
            tasks.create_task(
                self._stage(self._evaluate, wake=queued, stop=stop, pause_s=_WORK_PAUSE_S),
                name=f"evaluate-{number}",
            )
            for number in range(self.config.evaluate.concurrency)
        ]
        stages += [
            tasks.create_task(
                self._stage(deliverer.step, wake=done, stop=stop, pause_s=_WORK_PAUSE_S),
                name=f"deliver-{deliverer.sink.name}",
            )
            for deliverer in self.deliverers
        ]
        return stages

    async def _stage(self, step: Step, *, wake: asyncio.Event, stop: asyncio.Event, pause_s: float) -> None:
        await run_stage(step, wake=wake, stop=stop, pause_s=pause_s, counters=self.counters)

    async def _settle(self) -> bool:
        found_work = await self.settler.step()
        if found_work:  # traces without a RAG call wait no longer
            self.holder.released.set()
        return found_work

    async def _evaluate(self) -> bool:
        evaluator = self.evaluator  # what began with one judge ends with it, whatever is loaded meanwhile
        async with self.in_force.tenure.evaluation():
            return await evaluator.step()

    async def _throttle(self) -> bool:
        """Sample so little that the budget lasts, where it is to last."""
        guards = self.in_force.tenure.judging.guards
        if guards is not None and guards.wall is not None and self.config.budget.at_limit == "lower_rate":
            self.in_force.sampler.throttle(await guards.wall.find_share())
        return False

    async def _expire(self) -> bool:
        now_ns = self.clock.now_ns()
        await self.store.expire(
            settled_before_ns=now_ns - _ns(self.config.assemble.linger),
            ended_before_ns=now_ns - _ns(self.config.store.retention),
        )
        return False

    async def _drain(self) -> None:
        """Settle what is complete, then wait until it is judged and delivered, or the deadline comes.

        At half time, what is held goes on as it is: there must be time to deliver it.
        """
        half_s = self.config.drain_timeout.total_seconds() / 2
        async with _at_most(half_s):
            await self.settler.step(everything=True)
            await self._until_finished()
        async with _at_most(half_s):
            await self.holder.release_all()
            await self._until_finished()

    async def _until_finished(self) -> None:
        # Polled: the work to wait for stands in the store, and who ends it need not know of us.
        while await self.store.unfinished(now_ns=self._due_ns()):  # noqa: ASYNC110
            await asyncio.sleep(_SETTLE_PAUSE_S)

    def _due_ns(self) -> int:
        """Return until when a job must be due to be waited for: where nobody may be asked, none is."""
        return 0 if self.in_force.is_judge_away else self.clock.now_ns()

    async def _report(self) -> None:
        left = {name: number for name, number in (await self.store.ledger()).left().items() if number}
        log.info("stopped; left on disk: %s", left or "nothing", extra=event("stopped", **left))


@asynccontextmanager
async def _at_most(seconds: float) -> AsyncIterator[None]:
    """Leave off at the deadline, or where the store takes nothing: what is left is on disk."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        pass
    except StoreUnavailable as exc:
        log.error("what is left is not waited for: %s", exc, extra=event("drain_ended"))  # noqa: TRY400


def check_config(config: CollectorConfig) -> None:
    """Open what a configuration names, as far as that touches neither network nor disk.

    Raises:
        ConfigError: a metric, judge, key or endpoint cannot be used.
    """
    open_gate(config, SystemClock())
    asyncio.run(_open_and_close(config))
    open_sealing([key.get_secret_value() for key in config.store.encryption_keys])
    for export in config.export:
        _open_sink(export)


def _open_sink(export: ExportConfig) -> SpanSink:
    return open_sink(
        export.endpoint,
        headers={name: value.get_secret_value() for name, value in export.headers.items()},
        tls=export.tls.opened() if export.tls else None,
        timeout_s=export.timeout.total_seconds(),
    )


async def _open_and_close(config: CollectorConfig) -> None:
    async with open_judging(config):
        pass


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
            timeout_ns=_ns(config.attach.hold_timeout), most_bytes=config.attach.hold_max_bytes
        ),
        is_judge_away=lambda: in_force.is_judge_away,
        counters=counters,
        clock=clock,
        released=done,
    )
    reader = AnswerReader(store=store, counters=counters, mapping=config.extract.mapping.opened())
    assembly = Assembly(_assemble_policy(config), steady_ns=steady_ns)
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
            forward_to=_forward_to(config),
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
            attach=_attach_options(config),
            sinks=tuple(sinks),
            ladder=_ladder(config),
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


def _forward_to(config: CollectorConfig) -> tuple[str, ...]:
    return tuple(export.endpoint for export in config.export if export.forward)


def _release_to(config: CollectorConfig) -> tuple[str, ...]:
    """Return who gets held spans: all, where they were held before and none is to get originals now."""
    return _forward_to(config) or tuple(export.endpoint for export in config.export)


def _following(settler: Settler, config: CollectorConfig, sampler: Sampler) -> Settler:
    reader = replace(settler.reader, mapping=config.extract.mapping.opened())
    return replace(settler, reader=reader, sampler=sampler, max_revisions=config.assemble.max_revisions)


def _judging_by(evaluator: Evaluator, in_force: InForce) -> Evaluator:
    config = in_force.config
    return replace(
        evaluator,
        reader=replace(evaluator.reader, mapping=config.extract.mapping.opened()),
        judging=in_force.tenure.judging,
        partial=PartialEvaluations(),  # what another evaluator found is not this one's finding
        watch=replace(evaluator.watch, sampler=in_force.sampler),
        attach=_attach_options(config),
        ladder=_ladder(config),
        attempt_s=config.evaluate.job_timeout.total_seconds(),
    )


def _assemble_policy(config: CollectorConfig) -> AssemblePolicy:
    return AssemblePolicy(
        quiet_ns=_ns(config.assemble.quiet_period),
        deadline_ns=_ns(config.assemble.deadline),
        max_open_traces=config.assemble.max_open_traces,
        max_spans_per_trace=config.assemble.max_spans_per_trace,
    )


def sampler_of(config: SampleConfig) -> Sampler:
    """Build the sampler that a configuration describes, without what it saw before."""
    floor, limit, near = config.tenant_floor, config.limit, config.neighbours
    return Sampler(
        plan=config.plan(),
        fairness=Fairness(answers=floor.answers, window_ns=_ns(floor.window)) if floor else None,
        limits=Limits(answers=limit.answers, per_tenant=limit.per_tenant) if limit else None,
        neighbours=Neighbours(_neighbour_policy(near)) if near else None,
    )


def _neighbour_policy(config: NeighboursConfig) -> NeighbourPolicy:
    return NeighbourPolicy(
        below=config.below,
        metric=config.metric,
        bonds=config.same,
        rate=config.rate,
        most=config.most,
        window_ns=_ns(config.window),
    )


def _ladder(config: CollectorConfig) -> Ladder:
    return Ladder(
        retry_delays_ns=tuple(_ns(delay) for delay in config.evaluate.retry_delays),
        wait_ns=_ns(config.evaluate.probe_delays[0]),
        deadline_ns=_ns(config.evaluate.deadline),
        max_crashes=config.evaluate.max_crashes,
    )


def _attach_options(config: CollectorConfig) -> AttachOptions:
    return AttachOptions(
        carrier_time=config.attach.carrier_time,
        tempo_slack_s=config.attach.tempo_slack.total_seconds(),
        max_claims=config.attach.max_claims,
        content=config.attach.content,
        mark_failed_as_error=config.attach.mark_failed_as_error,
    )


def _ns(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1e9)
