"""An OTLP/HTTP endpoint in the process that is recorded: whatever exports, what it sent is kept as it was."""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.traces import otlp

__all__ = ["OtlpStub", "running_otlp_stub"]

_INFLATE = {"gzip": gzip.decompress, "deflate": zlib.decompress}


class OtlpStub:
    """Takes spans and log records at paths that end in ``/traces`` and ``/logs``, the rest without a look."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[ExportTraceServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []

    def spans_since(self, start_ns: int) -> ExportTraceServiceRequest:
        """Put together the spans that started since then, under one entry for each resource and scope."""
        merged = ExportTraceServiceRequest()
        for request in self.requests:
            for group in request.resource_spans:
                resource = _entry(merged.resource_spans, "resource", group)
                for scope in group.scope_spans:
                    wanted = [span for span in scope.spans if span.start_time_unix_nano >= start_ns]
                    if wanted:
                        _entry(resource.scope_spans, "scope", scope).spans.extend(wanted)
        kept = [group for group in merged.resource_spans if group.scope_spans]
        return ExportTraceServiceRequest(resource_spans=kept)

    def logs_of(self, spans: ExportTraceServiceRequest) -> list[ExportLogsServiceRequest]:
        """Return the exports, one by one, that hold records of these spans."""
        ids = {
            span.span_id
            for group in spans.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        }
        return [request for request in self.logs if _span_ids(request) & ids]


@contextmanager
def running_otlp_stub() -> Iterator[OtlpStub]:
    """Receive on a free loopback port until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    stub = OtlpStub(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = _handler(stub)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(stub: OtlpStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            body = b"".join(_body(self))
            body = _INFLATE.get(self.headers.get("content-encoding") or "", bytes)(body)
            if self.path.endswith("/traces"):
                is_json = "json" in (self.headers.get("content-type") or "")
                encoding: otlp.Encoding = "json" if is_json else "protobuf"
                stub.requests.append(otlp.parse_request(body, encoding=encoding))
            if self.path.endswith("/logs"):
                stub.logs.append(ExportLogsServiceRequest.FromString(body))
            self._answer()

        def _answer(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


def _span_ids(request: ExportLogsServiceRequest) -> set[bytes]:
    return {
        record.span_id
        for group in request.resource_logs
        for scope in group.scope_logs
        for record in scope.log_records
    }


def _body(request: BaseHTTPRequestHandler) -> Iterator[bytes]:
    """Read a body by its length, or in the chunks that Node sends."""
    if "chunked" not in (request.headers.get("transfer-encoding") or ""):
        yield request.rfile.read(int(request.headers.get("content-length") or 0))
        return
    while length := int(request.rfile.readline(), base=16):
        yield request.rfile.read(length)
        request.rfile.readline()
    request.rfile.readline()


def _entry(entries, part, like):  # type: ignore[no-untyped-def]  # over two kinds of message alike
    """Return the entry of this resource or scope, made where there is none yet."""
    for entry in entries:
        if getattr(entry, part) == getattr(like, part) and entry.schema_url == like.schema_url:
            return entry
    entry = entries.add(schema_url=like.schema_url)
    getattr(entry, part).CopyFrom(getattr(like, part))
    return entry
