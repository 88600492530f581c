"""What other tests rely on: the Jaeger they run is real, and finds what people find."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import format_trace_id

from tests.backends.jaeger_server import Jaeger


def send(exporter: SpanExporter, service: str, operation: str, tags: dict[str, str]) -> str:
    """Send one span; return its trace id."""
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    with provider.get_tracer("shop").start_as_current_span(operation, attributes=tags) as span:
        trace_id = format_trace_id(span.get_span_context().trace_id)
    provider.shutdown()
    return trace_id


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_span_is_found_by_service_tag_and_operation(jaeger: Jaeger, protocol: str) -> None:
    exporter = (
        GrpcSpanExporter(endpoint=jaeger.otlp_grpc, insecure=True)
        if protocol == "grpc"
        else HttpSpanExporter(endpoint=f"{jaeger.otlp_http}/v1/traces")
    )
    service, tags = f"shop-{protocol}", {"label": "fail"}
    trace_id = send(exporter, service, "evaluation fail", tags)

    assert jaeger.wait_for_trace(trace_id)["spans"][0]["operationName"] == "evaluation fail"
    for found in (jaeger.search(service, tags), jaeger.search(service, operation="evaluation fail")):
        assert [trace["traceID"] for trace in found] == [trace_id]
    assert jaeger.search(service, {"label": "pass"}) == []


def test_a_trace_that_was_never_sent_is_absent(jaeger: Jaeger) -> None:
    assert jaeger.trace("0" * 31 + "1") is None
