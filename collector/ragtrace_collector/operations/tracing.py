"""Own traces: settling, judging and delivering, each a span that links to what it worked on.

No content stands on them, and their scope is one that the loop guard drops: where they are sent through a
pipeline that feeds this collector, they are neither judged nor forwarded.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import Link, NoOpTracer, SpanContext, TraceFlags, Tracer

from ragtrace import semconv
from ragtrace_collector.operations.resource import own_resource

__all__ = ["NO_TRACER", "Tracing", "link_to"]

NO_TRACER: Tracer = NoOpTracer()


class Tracing:
    """The collector's own tracer, and what sends its spans."""

    def __init__(self, exporter: SpanExporter, *, ratio: float) -> None:
        self._provider = TracerProvider(
            sampler=TraceIdRatioBased(ratio), resource=own_resource(), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer(semconv.SCOPE_COLLECTOR)

    def close(self) -> None:
        """Send what is left, and close the exporter. It blocks."""
        self._provider.shutdown()


def link_to(trace_id: str, span_id: str) -> list[Link]:
    """Return a link to the span that is worked on."""
    context = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
    return [Link(context)]
