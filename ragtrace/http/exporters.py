"""The SDK's OTLP exporters, which use `requests` or gRPC.

Unpatched, older ones follow a redirect with the whole payload, and newer ones count it as a success.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import BytesIO
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from ragtrace.http.client import Body, UnreadableBody, host_of_redirect

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter


Protocol = Literal["grpc", "http/protobuf"]
_MOST_BYTES: Final = 1 << 20
_PIECE: Final = 65_536
_TIMEOUT_S: Final = 10.0
_OWN_SESSION: Final = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER"
"""Variables by which an application's package provides its own session, which stays unchanged."""


def open_span_exporter(
    *,
    protocol: Protocol,
    endpoint: str | None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    on_redirect: Callable[[int, str], None] | None = None,
) -> SpanExporter:
    """Open an exporter of spans; ``None`` values come from the standard variables.

    If the endpoint redirects, ``on_redirect`` is called with the status and the host, and the export fails.
    """
    options = _options(headers, timeout_s)
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc(endpoint=endpoint, **options)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    return OverHttp(endpoint=endpoint, session=_session("TRACES_", on_redirect), **options)


def open_metric_exporter(
    *, protocol: Protocol, endpoint: str, timeout_s: float | None = None
) -> MetricExporter:
    """Open an exporter of metrics; headers and certificates come from the standard variables."""
    options = _options(None, timeout_s)
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as OverGrpc

        return OverGrpc(endpoint=endpoint, **options)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as OverHttp

    return OverHttp(endpoint=endpoint, session=_session("METRICS_", None), **options)


def _options(headers: Mapping[str, str] | None, timeout_s: float | None) -> dict[str, Any]:
    return {"headers": dict(headers) if headers else None, "timeout": timeout_s}


def _session(signal: str, on_redirect: Callable[[int, str], None] | None) -> requests.Session | None:
    if any(_OWN_SESSION.format(part) in os.environ for part in ("", signal)):
        return None
    import requests
    from requests.adapters import HTTPAdapter

    class Careful(HTTPAdapter):
        """Refuses redirects, and responses that exceed the size or time limit."""

        def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
            timeout_s = kwargs.get("timeout")
            until = monotonic() + (timeout_s if isinstance(timeout_s, int | float) else _TIMEOUT_S)
            response = super().send(request, *args, **{**kwargs, "stream": True})
            try:
                self._check(response, str(request.url))
                response.raw = BytesIO(_whole(response, until))
            except UnreadableBody as exc:
                response.raw.close()
                raise requests.exceptions.ContentDecodingError(str(exc)) from None
            response.headers.pop("content-encoding", None)
            return response

        def _check(self, response: requests.Response, asked: str) -> None:
            status = response.status_code
            host = host_of_redirect(status, response.headers.get("location"), asked=asked)
            if 300 <= status < 400:
                if on_redirect is not None and host is not None:
                    on_redirect(status, host)
                raise UnreadableBody("it redirects, which is not followed")

    session = requests.Session()
    session.headers["accept-encoding"] = "gzip"
    session.mount("https://", Careful())
    session.mount("http://", Careful())
    return session


def _whole(response: requests.Response, until: float) -> bytes:
    body = Body(response.headers.get("content-encoding"), most_bytes=_MOST_BYTES)
    read = getattr(
        response.raw, "read1", response.raw.read
    )  # the first read returns the available data, which may arrive too slowly
    while piece := read(_PIECE, decode_content=False):
        body.take(piece)
        if monotonic() > until:
            raise UnreadableBody("it does not end in time")
    response.raw.release_conn()
    return body.whole()
