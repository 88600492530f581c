"""Score metrics in the two forms that leave the process: Prometheus families and OTLP data points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector as FamilyCollector
from prometheus_client.samples import Exemplar as SampleExemplar

from ragtrace import semconv
from ragtrace_collector.telemetry.scores import (
    BOUNDS,
    SCORE_METRICS,
    Labels,
    ScoreExemplar,
    ScoreHistogram,
    ScoreMetric,
    ScoreMetricKind,
    Scores,
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
            if metric.kind is ScoreMetricKind.HISTOGRAM:
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
        data = self._histogram(metric) if metric.kind is ScoreMetricKind.HISTOGRAM else self._sum(metric)
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
