"""The collector's own traces: one span a decision, evaluation or delivery, linked to the span it is about.

They hold no content and no error text. The loop guard drops their scope: if they come back through a
pipeline that feeds this collector, they are neither judged nor forwarded.
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, NoOpTracer, Span, SpanContext, StatusCode, TraceFlags, Tracer

from ragtrace import http, semconv

_TIMEOUT_S: Final = 3
"""Short, because a stop flushes the exporter before the collector exits."""


def open_metric_exporter(endpoint: str) -> MetricExporter:
    """Open the exporter of metrics; headers and certificates come from the standard variables."""
    return http.open_metric_exporter(**_place(endpoint, "/v1/metrics"))


def open_span_exporter(endpoint: str) -> SpanExporter:
    """Open the exporter of spans; headers and certificates come from the standard variables."""
    return http.open_span_exporter(**_place(endpoint, "/v1/traces"))


def _place(endpoint: str, path: str) -> dict[str, Any]:
    if _is_grpc(endpoint):
        return {"protocol": "grpc", "endpoint": _as_http(endpoint), "timeout_s": _TIMEOUT_S}
    return {
        "protocol": "http/protobuf",
        "endpoint": f"{endpoint.rstrip('/')}{path}",
        "timeout_s": _TIMEOUT_S,
    }


def _is_grpc(endpoint: str) -> bool:
    url = urlsplit(endpoint)
    return url.scheme.startswith("grpc") or str(url.port).endswith("4317")


def _as_http(endpoint: str) -> str:
    """Write a gRPC address for the SDK: the scheme says whether it uses TLS."""
    return endpoint.replace("grpc", "http", 1) if endpoint.startswith("grpc") else endpoint


@functools.cache
def own_resource() -> Resource:
    """Return the resource of this process. Standard variables such as OTEL_SERVICE_NAME take precedence."""
    own = Resource(
        {
            "service.name": "ragtrace-collector",
            "service.version": version("ragtrace-otel"),
            "service.instance.id": str(uuid.uuid4()),
        }
    )
    return own.merge(OTELResourceDetector().detect())


NO_TRACER: Tracer = NoOpTracer()


@asynccontextmanager
async def open_tracer(otlp_endpoint: str | None) -> AsyncIterator[Tracer]:
    """Open the tracer of the collector's own work. Without an endpoint, it costs almost nothing."""
    if otlp_endpoint is None:
        yield NO_TRACER
        return
    provider = TracerProvider(resource=own_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(open_span_exporter(otlp_endpoint)))
    try:
        yield provider.get_tracer(semconv.SCOPE_COLLECTOR)
    finally:
        await asyncio.to_thread(provider.shutdown)


@contextmanager
def working(tracer: Tracer, name: str, *, on: tuple[str, str] | None = None) -> Iterator[Span]:
    """Trace one piece of work; ``on`` is the trace id and span id that the span links to.

    The span starts its own trace, so that the application's trace does not grow.
    """
    links = [_link(*on)] if on else []
    with tracer.start_as_current_span(
        name, context=Context(), links=links, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as exc:
            span.set_attribute(semconv.ERROR_TYPE, type(exc).__name__)
            span.set_status(StatusCode.ERROR)
            raise


def _link(trace_id: str, span_id: str) -> Link:
    return Link(
        SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )
    )
