"""Real OTLP receivers on loopback, and a process that is left as it was found."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.util._once import Once

import ragtrace
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver


class HttpReceiver:
    """Keeps the export requests it gets by HTTP, with their paths and headers."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.ports: list[int] = []
        self.status = 200
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def keep_alive(self) -> None:
        """Answer more than one request on a connection."""
        self._server.RequestHandlerClass.protocol_version = "HTTP/1.1"  # type: ignore[attr-defined]

    def run(self) -> Iterator[HttpReceiver]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if receiver.status == 200:
                    receiver.ports.append(self.client_address[1])
                    receiver.paths.append(self.path)
                    receiver.headers.append({key.lower(): value for key, value in self.headers.items()})
                    receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        return Handler


@pytest.fixture
def http_receiver() -> Iterator[HttpReceiver]:
    yield from HttpReceiver().run()


@pytest.fixture
def grpc_receiver() -> Iterator[OtlpReceiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def uninstrumented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin as in a new process: OpenTelemetry's first global provider, and its sampler, would else stay."""
    ragtrace.uninstrument()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    yield
    ragtrace.uninstrument()
