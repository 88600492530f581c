"""What reports on the running collector: pages, its own metrics, systemd's watchdog."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
from starlette.applications import Starlette
from starlette.routing import Route

from ragtrace.errors import RagtraceError
from ragtrace_collector.config import TelemetryConfig
from ragtrace_collector.operations.metrics import SelfMetrics
from ragtrace_collector.operations.pages import pages_app
from ragtrace_collector.operations.signals import notify_watchdog, watchdog_pause_s
from ragtrace_collector.operations.vitals import Vitals
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.telemetry.scores import Scores
from ragtrace_collector.telemetry.tracing import open_metric_exporter
from ragtrace_collector.web.auth import ReceiverAuth
from ragtrace_collector.web.server import HttpServer, open_socket

log = logging.getLogger("ragtrace.collector")


@dataclass(slots=True, kw_only=True)
class Operations:
    """Reports the collector's state: opened, then started and stopped."""

    config: TelemetryConfig
    vitals: Vitals
    auth: ReceiverAuth
    scores: Scores | None = None
    accounts: tuple[Route, ...] = ()
    """Pages about single answers, and all of them."""
    port: int | None = None
    """The port of the pages, once they are open."""
    _server: HttpServer | None = None
    _metrics: SelfMetrics = field(init=False)
    _beats: list[asyncio.Task[None]] = field(default_factory=list)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the pages and the exporter of metrics; close them in the end.

        Raises:
            ConfigError: the address of the pages cannot be bound.
        """
        endpoint = self.config.otlp_endpoint
        exporter = open_metric_exporter(endpoint) if endpoint else None
        self._metrics = SelfMetrics(self.vitals.readings, push_to=exporter, scores=self.scores)
        async with aclosing(self._metrics):
            if self.config.listen is None:
                yield
            else:
                with closing(open_socket(self.config.listen, key="telemetry.listen")) as listening:
                    self.port = listening.getsockname()[1]
                    self._server = HttpServer(self._pages(), listening, certificate=self.auth.certificate)
                    yield
            await self._push()  # after the drain, so that its changes are included

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serve the pages, push the metrics and answer the watchdog, as tasks of this group."""
        if self._server is not None:
            tasks.create_task(self._server.serve(), name="pages")
        self._beats = [tasks.create_task(beat) for beat in self._beating()]

    def stop(self) -> None:
        """End the tasks. They end last, so that the pages show the drain."""
        if self._server is not None:
            self._server.stop()
        for beat in self._beats:
            beat.cancel()

    def _beating(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self.vitals.lag.watch()
        if self.config.otlp_endpoint:
            interval_ms = float(os.environ.get(OTEL_METRIC_EXPORT_INTERVAL, 60_000))
            yield _every(interval_ms / 1000, self._push)
        if pause_s := watchdog_pause_s():
            yield _every(pause_s, _notify_watchdog)

    async def _push(self) -> None:
        try:
            await self._metrics.push()
        except RagtraceError as exc:  # the store cannot be read: the next push includes its values
            log.warning("the collector's own metrics were not sent: %s", exc, extra=event("metrics_unread"))

    def _pages(self) -> Starlette:
        return pages_app(
            readiness=self.vitals.readiness,
            status=self.vitals.status,
            metrics=self._metrics,
            access=self.auth.access,
            accounts=self.accounts,
        )


async def _notify_watchdog() -> None:
    notify_watchdog()


async def _every(pause_s: float, beat: Callable[[], Awaitable[None]]) -> None:
    while True:
        await beat()
        await asyncio.sleep(pause_s)
