"""The collector's own metrics, through OpenTelemetry's SDK: scraped as Prometheus text and pushed as OTLP."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import Exemplar, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector as FamilyCollector
from prometheus_client.samples import Exemplar as SampleExemplar

from ragtrace import semconv
from ragtrace_collector.ledger import PENDING, TERMINAL, Ledger
from ragtrace_collector.telemetry.counters import Counts
from ragtrace_collector.telemetry.scores import (
    BOUNDS,
    SCORE_METRICS,
    Labels,
    ScoreExemplar,
    ScoreHistogram,
    ScoreMetric,
    Scores,
)
from ragtrace_collector.telemetry.tracing import own_resource


class Instrument(NamedTuple):
    """One metric. Units are UCUM codes, as in OpenTelemetry."""

    name: str
    description: str
    unit: str = ""
    is_counter: bool = False
    """Whether it grows since the process started; else it goes up and down."""


Readings = Mapping[str, Sequence[Observation]]
"""Values by metric name, read at one moment, so that sums add up."""


def read_all(ledger: Ledger, counters: Mapping[str, int], *, now_ns: int) -> dict[str, Sequence[Observation]]:
    """Return the values of the ledger and the counters. Each was read at one moment, so that sums add up."""
    return {
        **{counter_name(counted): (Observation(counters[counted.value]),) for counted in Counts},
        "ragtrace.answers.seen": (Observation(ledger.seen),),
        "ragtrace.answers": tuple(_answers(ledger)),
        "ragtrace.answers.superseded": (Observation(ledger.superseded),),
        "ragtrace.answers.oldest_pending": (Observation(ledger.age_s(now_ns)),),
        "ragtrace.traces.open": (Observation(ledger.open_traces),),
        "ragtrace.traces.held": (Observation(ledger.held_traces),),
        "ragtrace.traces.poison": (Observation(ledger.poison_traces),),
        "ragtrace.traces.unread": tuple(_unread(ledger)),
        "ragtrace.outbox": tuple(
            Observation(number, {"sink": sink, "state": state})
            for sink, sums in ledger.outbox_items.items()
            for state, number in sums.items()
            if state != "put"
        ),
        "ragtrace.dead_letters": tuple(
            Observation(number, {"reason": reason}) for reason, number in ledger.dead_letters.items()
        ),
        "ragtrace.store.size": (Observation(ledger.store_bytes),),
    }


def _answers(ledger: Ledger) -> Iterator[Observation]:
    """Yield every state and reason seen so far, zeros included, so that no series stops at its last value."""
    sums: Counter[tuple[str, str]] = Counter({(state, ""): 0 for state in (*PENDING, *TERMINAL)})
    for account in ledger.accounts:
        sums[account.state, account.reason] += account.number
    for (state, reason), number in sums.items():
        yield Observation(number, {"state": state, "reason": reason})


def _unread(ledger: Ledger) -> Iterator[Observation]:
    sums: Counter[str] = Counter()
    for each in ledger.unread:
        sums[each.producer] += each.number
    for producer, number in sums.items():
        yield Observation(number, {"producer": producer})


_PREFIX: Final = "ragtrace.collector."


def counter_name(counted: Counts) -> str:
    """Return the metric name of a counter."""
    return f"{_PREFIX}{counted.value}"


METRICS: Final = (
    *(Instrument(counter_name(counted), counted.meaning, is_counter=True) for counted in Counts),
    Instrument("ragtrace.answers.seen", "RAG answers seen: the sum of ragtrace.answers"),
    Instrument("ragtrace.answers", "RAG answers by state and reason"),
    Instrument("ragtrace.answers.superseded", "answers that late spans moved to another span"),
    Instrument("ragtrace.evaluation.judged", "answers of the last ten minutes with a score, by metric"),
    Instrument(
        "ragtrace.evaluation.chosen",
        "answers that were to be judged then, by metric: scored, failed, or waiting after a failed attempt",
    ),
    Instrument(
        "ragtrace.evaluation.coverage", "scored share of the chosen answers, by metric; nothing without any"
    ),
    Instrument("ragtrace.answers.oldest_pending", "age of the oldest pending answer", unit="s"),
    Instrument("ragtrace.traces.open", "traces that more spans may join"),
    Instrument("ragtrace.traces.held", "traces whose own spans wait for their scores"),
    Instrument("ragtrace.traces.poison", "traces set aside as poison: the log names them"),
    Instrument(
        "ragtrace.traces.unread",
        "traces with text in which nothing was read, by producer: `ragtrace ledger` proposes a mapping",
    ),
    Instrument("ragtrace.outbox", "outbox items by sink and state"),
    Instrument("ragtrace.store.size", "bytes in the store", unit="By"),
    Instrument("ragtrace.store.limit", "store.max_bytes", unit="By"),
    Instrument("ragtrace.index.rows", "judged answers in the index, and superseded ones"),
    Instrument(
        "ragtrace.drift.score",
        "mean score of the anchors in the last complete run of the drift check",
        unit="1",
    ),
    Instrument(
        "ragtrace.drift.agreement",
        "share of the anchors' known labels that the last complete run met",
        unit="1",
    ),
    Instrument("ragtrace.drift.detected", "1 while the judge is not the one of the baseline"),
    Instrument(
        "ragtrace.drift.runs", "runs of the drift check since the baseline, by result", is_counter=True
    ),
    Instrument(
        "ragtrace.judge.model_changes",
        "models and fingerprints that answered in a judge's name after the first, by requested model",
        is_counter=True,
    ),
    Instrument("ragtrace.judge.concurrency", "limit of concurrent requests to a judge"),
    Instrument(
        "ragtrace.judge.usages_doubted",
        "responses of a judge with an impossible token usage: negative, or more input than was sent",
        is_counter=True,
    ),
    Instrument("ragtrace.budget.spent", "spent in this window: calls, tokens, 1e-9 US dollars"),
    Instrument("ragtrace.budget.limit", "limit of this window, in the same units"),
    Instrument("ragtrace.budget.share_to_sample", "factor that the budget applies to all sampling rates"),
    Instrument(
        "ragtrace.judge.stopped",
        "1 while nothing is judged, by reason: until a response shows that the judge is back",
    ),
    Instrument("ragtrace.kafka.connected", "1 while the topics of receive.kafka can be read"),
    Instrument("ragtrace.kafka.partitions", "partitions that the group gave this collector"),
    Instrument("ragtrace.kafka.lag", "messages of each of these partitions that are not committed"),
    Instrument(
        "ragtrace.dead_letters",
        "messages of topics that could not be used, by reason, since the store was made",
    ),
    Instrument("ragtrace.collector.ready", "1 while /readyz reports ready"),
    Instrument("ragtrace.collector.tasks", "tasks in the event loop"),
    Instrument("ragtrace.collector.loop_lag", "how late the event loop last woke", unit="s"),
    Instrument("ragtrace.collector.config", "1, with the digest of the live configuration"),
    Instrument("ragtrace.collector.reloads", "configuration reloads on SIGHUP, by result", is_counter=True),
)


_BUCKETS: Final = (*map(str, BOUNDS), "+Inf")


class ScoreFamilies(FamilyCollector):
    """Score metrics for a scrape. In OpenMetrics, a bucket has the trace of its last score as exemplar."""

    def __init__(self, scores: Scores) -> None:
        self.scores = scores
        """What the next scrape shows."""

    def describe(self) -> Iterator[MetricFamily]:
        """Name the families, so that no other collector uses the names."""
        return self._families(filled=False)

    def collect(self) -> Iterator[MetricFamily]:
        """Yield the families with their series."""
        return self._families(filled=True)

    def _families(self, *, filled: bool) -> Iterator[MetricFamily]:
        for metric in SCORE_METRICS:
            labels = [_prometheus(name) for name in self.scores.attributes(metric)]
            if metric.is_histogram:
                family = HistogramMetricFamily(_prometheus(metric.name), metric.description, labels=labels)
                for values, histogram in self.scores.histograms[metric].items() if filled else ():
                    family.add_metric(list(values), [*_buckets(histogram)], sum_value=histogram.total)
                yield family
            else:
                counter = CounterMetricFamily(_prometheus(metric.name), metric.description, labels=labels)
                for values, amount in self.scores.sums[metric].items() if filled else ():
                    counter.add_metric(list(values), amount)
                yield counter


def _prometheus(name: str) -> str:
    return name.replace(".", "_")


def _buckets(histogram: ScoreHistogram) -> Iterator[tuple[str, float] | tuple[str, float, SampleExemplar]]:
    counted = (*accumulate(histogram.counts), sum(histogram.counts))
    for place, (bound, number) in enumerate(zip(_BUCKETS, counted, strict=True)):
        shown = histogram.exemplars.get(place)
        yield (bound, number) if shown is None else (bound, number, _sample_exemplar(shown))


def _sample_exemplar(shown: ScoreExemplar) -> SampleExemplar:
    return SampleExemplar(
        {"trace_id": shown.trace_id, "span_id": shown.span_id}, shown.score, shown.time_ns / 1e9
    )


def otlp_of(scores: Scores, resource: Resource, *, now_ns: int) -> MetricsData:
    """Return score metrics as OTLP, cumulative since the process started.

    OTLP counts in whole numbers: a bucket of a weighted histogram is rounded down, by less than one answer,
    and the sum with it.
    """
    points = _Points(scores, now_ns)
    metrics = [found for metric in SCORE_METRICS if (found := points.metric(metric)) is not None]
    scope = ScopeMetrics(scope=InstrumentationScope(semconv.SCOPE_COLLECTOR), metrics=metrics, schema_url="")
    return MetricsData(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")]
    )


class _Points:
    """Makes data points of one moment."""

    def __init__(self, scores: Scores, now_ns: int) -> None:
        self._scores, self._now_ns = scores, now_ns

    def metric(self, metric: ScoreMetric) -> Metric | None:
        """Return a metric with its series; ``None`` without any."""
        data = self._histogram(metric) if metric.is_histogram else self._sum(metric)
        if not data.data_points:
            return None
        return Metric(name=metric.name, description=metric.description, unit=metric.unit, data=data)

    def _histogram(self, metric: ScoreMetric) -> Histogram:
        return Histogram(
            data_points=[
                self._point(self._named(metric, values), histogram)
                for values, histogram in self._scores.histograms[metric].items()
            ],
            aggregation_temporality=AggregationTemporality.CUMULATIVE,
        )

    def _point(self, attributes: Mapping[str, str], histogram: ScoreHistogram) -> HistogramDataPoint:
        counts = [*map(int, histogram.counts), 0]
        share = sum(counts) / sum(histogram.counts)  # so that the mean stays what it is
        return HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=self._scores.started_ns,
            time_unix_nano=self._now_ns,
            count=sum(counts),
            sum=histogram.total * share,
            bucket_counts=counts,
            explicit_bounds=BOUNDS,
            min=histogram.lowest,
            max=histogram.highest,
            exemplars=[*map(_exemplar, histogram.exemplars.values())],
        )

    def _sum(self, metric: ScoreMetric) -> Sum:
        return Sum(
            data_points=[
                NumberDataPoint(
                    attributes=self._named(metric, values),
                    start_time_unix_nano=self._scores.started_ns,
                    time_unix_nano=self._now_ns,
                    value=amount,
                )
                for values, amount in self._scores.sums[metric].items()
            ],
            aggregation_temporality=AggregationTemporality.CUMULATIVE,
            is_monotonic=True,
        )

    def _named(self, metric: ScoreMetric, values: Labels) -> Mapping[str, str]:
        named = zip(self._scores.attributes(metric), values, strict=True)
        return {name: value for name, value in named if value}


def _exemplar(shown: ScoreExemplar) -> Exemplar:
    return Exemplar(
        filtered_attributes={},
        value=shown.score,
        time_unix_nano=shown.time_ns,
        span_id=int(shown.span_id, 16),
        trace_id=int(shown.trace_id, 16),
    )


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
            create = meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
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
        return _NOW.get({}).get(metric.name, ())

    return observe
