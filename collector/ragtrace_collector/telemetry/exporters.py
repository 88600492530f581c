"""The SDK's OTLP exporters by address, gRPC or HTTP, with addresses written as for back ends."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from ragtrace.http import exporters

_TIMEOUT_S: Final = 3
"""Short, because a stop flushes the exporter before the collector exits."""


def open_metric_exporter(endpoint: str) -> MetricExporter:
    """Open the exporter of metrics; headers and certificates come from the standard variables."""
    return exporters.open_metric_exporter(**_place(endpoint, "/v1/metrics"))


def open_span_exporter(endpoint: str) -> SpanExporter:
    """Open the exporter of spans; headers and certificates come from the standard variables."""
    return exporters.open_span_exporter(**_place(endpoint, "/v1/traces"))


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
