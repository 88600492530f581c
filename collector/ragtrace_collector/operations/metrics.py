"""The collector's own metrics, through OpenTelemetry's SDK: scraped as Prometheus text and pushed as OTLP."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from ragtrace import semconv
from ragtrace_collector.operations._instruments import METRICS, Instrument, InstrumentKind, Readings
from ragtrace_collector.operations._score_points import ScoreFamilies, otlp_of
from ragtrace_collector.telemetry.scores import Scores
from ragtrace_collector.telemetry.tracing import own_resource

_NOW: ContextVar[Readings] = ContextVar("readings")
"""The readings of one collection. A scrape and a push that overlap have separate ones."""


class SelfMetrics:
    """Reads all values at one moment for each scrape and each push, so that the numbers add up."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Readings]],
        *,
        push_to: MetricExporter | None,
        scores: Scores | None = None,
    ) -> None:
        self._read, self._scores, self._exporter = read, scores, push_to
        self._registry = CollectorRegistry()
        self._page = asyncio.Lock()
        ProcessCollector(registry=self._registry)
        self._families = ScoreFamilies(scores) if scores is not None else None
        if self._families is not None:
            self._registry.register(self._families)
        self._pushing = _pushing_reader(push_to)
        scraped = PrometheusMetricReader(registry=self._registry, scope_info_enabled=False)
        self._provider = MeterProvider(
            metric_readers=[scraped, *self._pushing], resource=own_resource(), shutdown_on_exit=False
        )
        meter = self._provider.get_meter(semconv.SCOPE_COLLECTOR)
        for metric in METRICS:
            create = _CREATE[metric.kind](meter)
            create(
                metric.name, callbacks=[_reader_of(metric)], unit=metric.unit, description=metric.description
            )

    async def page(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition text and its content type, in the format that the scraper accepts.

        Another thread encodes it, one page at a time.
        """
        encode, content_type = choose_encoder(accept)
        async with self._page:
            _NOW.set(await self._read())
            if self._scores is not None and self._families is not None:
                self._families.scores = self._scores.snapshot()
            return await asyncio.to_thread(encode, self._registry), content_type

    async def push(self) -> None:
        """Send everything to the OTLP endpoint, if there is one. A failure is logged by the exporter."""
        if not self._pushing:
            return
        exporter = self._exporter
        if self._scores is not None and exporter is not None:
            points = partial(otlp_of, self._scores.snapshot(), own_resource(), now_ns=time.time_ns())
            await asyncio.to_thread(lambda: exporter.export(points()))
        _NOW.set(await self._read())
        for reader in self._pushing:
            await asyncio.to_thread(reader.collect)  # the thread has a copy of the context, with the readings

    async def aclose(self) -> None:
        """Close the exporter."""
        await asyncio.to_thread(self._provider.shutdown)


def _pushing_reader(exporter: MetricExporter | None) -> Sequence[MetricReader]:
    # without its own interval: the values are read from the store first
    return [PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)] if exporter else []


def _reader_of(metric: Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.value, each.attributes) for each in _NOW.get({}).get(metric.name, ())]

    return observe


_CREATE: Final = {
    InstrumentKind.COUNTER: lambda meter: meter.create_observable_counter,
    InstrumentKind.GAUGE: lambda meter: meter.create_observable_gauge,
}
