"""One collector process: what the configuration names is opened, wired, started, and stopped in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import Tracer

from ragtrace.answers.port import AnswerFilter
from ragtrace.budget import SpendLedger
from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.extras import install_command
from ragtrace.ports import Clock, SpanSink
from ragtrace.process import SystemClock, settle_memory
from ragtrace_collector.assemble import Assembly
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.deliver import ObservedSink, open_export, open_logs_export
from ragtrace_collector.drift import check_anchors
from ragtrace_collector.judge import Live, LiveConfig, guards_of, open_evaluator
from ragtrace_collector.ledger import Coverage
from ragtrace_collector.operations.pages import Phase, account_routes
from ragtrace_collector.operations.signals import (
    Reloads,
    Signals,
    digest_of,
    notify_ready,
    notify_reloading,
    notify_stopping,
    refuse_what_needs_a_restart,
)
from ragtrace_collector.operations.vitals import Operations, Vitals
from ragtrace_collector.receive.grpc import serve_grpc
from ragtrace_collector.receive.http import http_app
from ragtrace_collector.receive.intake import Intake, RequestMemory
from ragtrace_collector.service.page import UiService
from ragtrace_collector.service.pipeline import (
    Role,
    SharedParts,
    StorePipeline,
    assemble_policy_of,
    forward_logs_to,
    pipeline_over,
    release_to,
    sampler_of,
)
from ragtrace_collector.store.open import open_store
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import CalendarClock, Counters, SteadyClock
from ragtrace_collector.telemetry.logs import event, place_of
from ragtrace_collector.telemetry.scores import Scores
from ragtrace_collector.telemetry.tracing import open_tracer
from ragtrace_collector.web.server import HttpServer, ReceiverAuth, is_loopback, open_auth, open_socket
from ragtrace_collector.web.tokens import TokenAuth, TokenGrant, TokenSender

if TYPE_CHECKING:
    from ragtrace_collector.receive.kafka import KafkaReceiver

log = logging.getLogger("ragtrace.collector")


def check_kafka(config: CollectorConfig) -> None:
    """See that what `receive.kafka` says can be used, without a connection.

    Raises:
        ConfigError: the extra is not installed, or its client refuses a setting.
    """
    if config.receive.kafka is None:
        return
    with needs_kafka():
        from ragtrace_collector.receive.kafka import check_settings
    check_settings(config.receive.kafka)


def open_kafka(
    config: CollectorConfig,
    *,
    intake: Intake,
    store: Store,
    access: TokenAuth,
    counters: Counters,
    clock: Clock,
) -> KafkaReceiver | None:
    """Build the receiver of a configuration that was checked; it reads nothing yet."""
    kafka = config.receive.kafka
    if kafka is None:
        return None
    from ragtrace_collector.receive.kafka import KafkaReceiver

    # Brokers decide who writes into the topics: it has no allowance here.
    writers = TokenSender(TokenGrant(name="kafka", digest=b"", tenant=kafka.tenant), clock)
    return KafkaReceiver(
        config=kafka,
        max_message_bytes=config.receive.max_message_bytes,
        intake=intake,
        store=store,
        sender=lambda: None if access.is_open and not kafka.tenant else writers,
        counters=counters,
    )


@contextmanager
def needs_kafka() -> Iterator[None]:
    """Import what uses the client.

    Raises:
        ConfigError: it is not installed; says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith("confluent_kafka"):
            raise
        raise ConfigError(f"`receive.kafka` needs the extra `kafka`: {install_command('kafka')}") from None


_LAST_TURN_S: Final = 1.0
_GRPC_GRACE_S: Final = 2.0


@dataclass(slots=True, kw_only=True)
class Collector:
    """One collector process: what receives, the pipeline, and the pages about them."""

    configuration: LiveConfig
    pipeline: StorePipeline
    kafka: KafkaReceiver | None
    shares_ports: bool
    """Whether other processes listen on the same addresses."""
    counters: Counters
    clock: Clock
    auth: ReceiverAuth
    operations: Operations
    ui: UiService
    grpc_port: int | None = None
    """The port in use, once serving: of interest where the configuration says port 0."""
    http_port: int | None = None

    @property
    def live(self) -> Live:
        """The current snapshot of the live configuration."""
        return self.configuration.now

    @property
    def config(self) -> CollectorConfig:
        """The live configuration."""
        return self.live.config

    @property
    def vitals(self) -> Vitals:
        """How it is: what its pages and metrics tell."""
        return self.operations.vitals

    async def reload(self, config: CollectorConfig) -> None:
        """Follow another configuration from the next answer on; what is under way ends by the one before.

        Raises:
            ConfigError: it cannot be used, or needs a restart; nothing has changed.
        """
        refuse_what_needs_a_restart(self.config, config)
        check_anchors(config)
        guards = guards_of(config, clock=self.clock, spend_ledger=self.pipeline.store.budget)
        evaluator = open_evaluator(self.pipeline.role.judging(config), guards)
        async with AsyncExitStack() as undone:
            undone.push_async_callback(evaluator.retire)
            follow = await self.pipeline.prepare(config, evaluator)
            self.auth.reload(config.receive)
            undone.pop_all()
        before = self.live.guarded
        follow()
        logging.getLogger().setLevel(config.log_level.upper())
        await before.retire()

    async def _follow(self, reloads: Reloads) -> None:
        """Reload when asked. If a reload fails, log why and keep the configuration."""
        while True:
            await reloads.asked.wait()
            reloads.asked.clear()
            notify_reloading()
            try:
                await self.reload(reloads.read())
            except Exception as exc:  # noqa: BLE001 -- a reload loads plug-ins, which may raise anything
                self.vitals.reloads["refused"] += 1
                why = exc if isinstance(exc, RagtraceError) else place_of(exc)
                log.error("the configuration stays as it was: %s", why, extra=event("reload_refused"))  # noqa: TRY400
            else:
                self.vitals.reloads["applied"] += 1
                digest = digest_of(self.config)
                log.info("configuration %s is live", digest, extra=event("reloaded", config=digest))
            notify_ready(f"judging with {self.config.judge.use}")

    async def serve(
        self,
        stop: asyncio.Event,
        *,
        on_ready: Callable[[Collector], None] | None = None,
        reloads: Reloads | None = None,
    ) -> None:
        """Run until ``stop`` is set, then drain. ``reloads`` says when to read the configuration again."""
        async with self.operations.opened(), self.ui.opened(), AsyncExitStack() as receivers:
            receives = self.pipeline.role is not Role.EVALUATE
            if receives:
                await self._start_grpc(receivers)
            http = self._bind_http() if receives else None
            async with asyncio.TaskGroup() as tasks:
                if http is not None:
                    receivers.callback(http.stop)
                    tasks.create_task(http.serve(), name="http")
                if receives and self.kafka is not None:
                    receivers.push_async_callback(self.kafka.stop)
                    self.kafka.start(tasks)
                self.operations.start(tasks)
                self.ui.start(tasks)
                following = tasks.create_task(self._follow(reloads)) if reloads else None
                await self._work(tasks, receivers, stop, on_ready)
                if following is not None:
                    following.cancel()
                self.ui.stop()
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
        stages = tasks.create_task(self.pipeline.run(drained), name="stages")
        self._say_serving(on_ready)
        await stop.wait()
        self.vitals.phase = Phase.STOPPING
        notify_stopping()
        log.info("stopping: no new spans are taken", extra=event("stopping"))
        await receivers.aclose()
        await self.pipeline.intake.finish()
        await self.pipeline.drain()
        drained.set()
        await asyncio.wait([stages], timeout=_LAST_TURN_S)
        stages.cancel()

    def _say_serving(self, on_ready: Callable[[Collector], None] | None) -> None:
        self.vitals.phase = Phase.SERVING
        if on_ready is not None:
            on_ready(self)
        notify_ready(f"judging with {self.config.judge.use}")
        log.info(
            "listening: grpc %s, http %s, pages %s%s",
            self.grpc_port,
            self.http_port,
            self.operations.port,
            f", ui {self.ui.port}" if self.ui.port else "",
            extra=event("listening", config=digest_of(self.config)),
        )
        judge, exports = self.config.judge.use, [export.endpoint for export in self.config.export]
        log.info(
            "judge: %s%s; verdicts go to %s",
            judge,
            " (a heuristic that needs no key: a language model finds more)" if judge == "lexical" else "",
            ", ".join(exports) or "the store only, which `ragtrace tail` and the page show",
            extra=event("judging", judge=judge),
        )
        if self.ui.port:
            log.info("page of answers: %s", self.ui.url, extra=event("page", port=self.ui.port))

    def _bind_http(self) -> HttpServer | None:
        if self.config.receive.http is None:
            return None
        listening = open_socket(self.config.receive.http, is_shared=self.shares_ports)
        self.http_port = listening.getsockname()[1]
        app = http_app(
            self.pipeline.intake,
            status=self.vitals.status,
            access=self.auth.access,
            counters=self.counters,
            max_message_bytes=self.config.receive.max_message_bytes,
            is_open=not is_loopback(self.config.receive.http),
        )
        return HttpServer(app, listening, certificate=self.auth.certificate)

    async def _start_grpc(self, receivers: AsyncExitStack) -> None:
        if self.config.receive.grpc is None:
            return
        server, self.grpc_port = await serve_grpc(
            self.pipeline.intake,
            self.config.receive.grpc,
            access=self.auth.access,
            certificate=self.auth.certificate,
            max_message_bytes=self.config.receive.max_message_bytes,
            is_shared=self.shares_ports,
        )
        receivers.push_async_callback(server.stop, _GRPC_GRACE_S)

    async def _report(self) -> None:
        left = await self.pipeline.left()
        log.info("stopped; left on disk: %s", left or "nothing", extra=event("stopped", **left))


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
        stack.push_async_callback(lambda: live.now.guarded.retire())
        assembly = Assembly(assemble_policy_of(config), monotonic_ns=monotonic_ns)
        pipeline = pipeline_over(store, shared, live, role, assembly=assembly, clock=clock, calendar=calendar)
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
    evaluator = open_evaluator(role.judging(config), guards)
    async with AsyncExitStack() as undone:
        undone.push_async_callback(evaluator.retire)
        live = Live.of(config, evaluator, sampler_of(config.sample))
        undone.pop_all()
    for line in evaluator.old_prices(now_ns=clock.now_ns()):
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
