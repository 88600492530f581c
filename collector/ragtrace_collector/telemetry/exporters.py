"""The SDK's OTLP exporters by address, written as for back ends, and the resource of what they send."""

from __future__ import annotations

import functools
import uuid
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExporter

from ragtrace import http

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
