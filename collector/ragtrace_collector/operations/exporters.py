"""The SDK's OTLP exporters by address, as the back ends' addresses are read: gRPC or HTTP."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["open_metric_exporter", "open_span_exporter"]

_TIMEOUT_S: Final = 3
"""A stop sends what is left, and has to end within ``cancel_timeout``."""


def open_metric_exporter(endpoint: str) -> MetricExporter:
    """Open the exporter of metrics; headers and certificates come from the standard variables."""
    if _is_grpc(endpoint):
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as OverGrpc

        return OverGrpc(endpoint=_as_http(endpoint), timeout=_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as OverHttp

    return OverHttp(endpoint=f"{endpoint.rstrip('/')}/v1/metrics", timeout=_TIMEOUT_S)


def open_span_exporter(endpoint: str) -> SpanExporter:
    """Open the exporter of spans; headers and certificates come from the standard variables."""
    if _is_grpc(endpoint):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc(endpoint=_as_http(endpoint), timeout=_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    return OverHttp(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT_S)


def _is_grpc(endpoint: str) -> bool:
    url = urlsplit(endpoint)
    return url.scheme.startswith("grpc") or str(url.port).endswith("4317")


def _as_http(endpoint: str) -> str:
    """Write a gRPC address as the SDK reads it: the scheme tells whether it is secured."""
    return endpoint.replace("grpc", "http", 1) if endpoint.startswith("grpc") else endpoint
