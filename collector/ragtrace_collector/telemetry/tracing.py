"""The collector's own traces: one span a decision, evaluation or delivery, linked to the span it is about.

They hold no content and no error text. The loop guard drops their scope: if they come back through a
pipeline that feeds this collector, they are neither judged nor forwarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, NoOpTracer, Span, SpanContext, StatusCode, TraceFlags, Tracer

from ragtrace import semconv
from ragtrace_collector.telemetry.exporters import open_span_exporter, own_resource

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
