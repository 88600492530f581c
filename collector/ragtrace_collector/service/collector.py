"""One collector process: its servers, its pages and its pipeline, started and stopped in order.

To stop, it accepts no more spans, processes complete traces, drains until a deadline, cancels what is left,
closes the sinks, and logs what is left on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragtrace.errors import RagtraceError
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.drift import check_anchors
from ragtrace_collector.judge import Live, LiveConfig, SharedEvaluator, guards_of, open_evaluator
from ragtrace_collector.operations.pages import Phase
from ragtrace_collector.operations.signals import (
    Reloads,
    digest_of,
    notify_ready,
    notify_reloading,
    notify_stopping,
    refuse_what_needs_a_restart,
)
from ragtrace_collector.operations.vitals import Operations, Vitals
from ragtrace_collector.receive.grpc import serve_grpc
from ragtrace_collector.receive.http import http_app
from ragtrace_collector.service.page import UiService
from ragtrace_collector.service.pipeline import Role, StorePipeline
from ragtrace_collector.telemetry.counters import Counters
from ragtrace_collector.telemetry.logs import event, place_of
from ragtrace_collector.web.auth import ReceiverAuth
from ragtrace_collector.web.server import HttpServer, is_loopback, open_socket

if TYPE_CHECKING:  # its client is an extra
    from ragtrace_collector.receive.kafka import KafkaReceiver

log = logging.getLogger("ragtrace.collector")

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
        evaluator = await SharedEvaluator.begin(open_evaluator(self.pipeline.role.judging(config), guards))
        async with AsyncExitStack() as undone:
            undone.push_async_callback(evaluator.retire)
            follow = await self.pipeline.prepare(config, evaluator)
            self.auth.reload(config.receive)
            undone.pop_all()
        before = self.live.shared_evaluator
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
