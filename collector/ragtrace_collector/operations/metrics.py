"""Own metrics by OpenTelemetry's SDK: one source, scraped as Prometheus text and pushed as OTLP."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from ragtrace import semconv
from ragtrace_collector.operations._instruments import METRICS, Instrument, InstrumentKind, Readings
from ragtrace_collector.telemetry.resource import own_resource

_NOW: ContextVar[Readings] = ContextVar("readings")
"""What the instruments tell during one collection. A scrape and a push that meet have each their own."""


class SelfMetrics:
    """Reads everything at once, for each scrape and each push: the numbers of one page add up."""

    def __init__(self, read: Callable[[], Awaitable[Readings]], *, push_to: MetricExporter | None) -> None:
        self._read = read
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
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
        """Return the exposition text and its content type, in the form that the scraper accepts."""
        _NOW.set(await self._read())
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    async def push(self) -> None:
        """Send everything to the OTLP endpoint, if there is one. A failure is logged by the exporter."""
        if not self._pushing:
            return
        _NOW.set(await self._read())
        for reader in self._pushing:
            await asyncio.to_thread(reader.collect)  # it has a copy of the context, with the readings

    async def aclose(self) -> None:
        """Close the exporter."""
        await asyncio.to_thread(self._provider.shutdown)


def _pushing_reader(exporter: MetricExporter | None) -> Sequence[MetricReader]:
    # without an interval of its own: the numbers have to be read from the store before
    return [PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)] if exporter else []


def _reader_of(metric: Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.value, each.attributes) for each in _NOW.get({}).get(metric.name, ())]

    return observe


_CREATE: Final = {
    InstrumentKind.COUNTER: lambda meter: meter.create_observable_counter,
    InstrumentKind.GAUGE: lambda meter: meter.create_observable_gauge,
}
