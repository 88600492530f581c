"""Receivers on loopback that answer as a test tells them to."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse


@dataclass
class HttpAnswer:
    """What the server says to every request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class HttpServer:
    """A server's address, and what it was sent."""

    url: str
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """Path, headers with lower-case names, and body."""


@contextmanager
def http_server(answer: Callable[[str], HttpAnswer], *, port: int = 0) -> Iterator[HttpServer]:
    """Serve, on a free port unless told otherwise; ``answer`` is given the path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            received.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            reply = answer(self.path)
            self.send_response(reply.status)
            for name, value in {**reply.headers, "content-length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        do_POST = do_GET  # noqa: N815 -- the base class calls it so

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # the default of 5 resets connections that come together

    server = Server(("127.0.0.1", port), Handler)
    received = HttpServer(url=f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class GrpcAnswer:
    """What the server says to every request."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    status_details: bytes | None = None
    response: ExportTraceServiceResponse = field(default_factory=ExportTraceServiceResponse)


@dataclass
class GrpcServer:
    """A server's address, and what it was sent."""

    endpoint: str
    requests: list[bytes] = field(default_factory=list)
    metadata: list[dict[str, str | bytes]] = field(default_factory=list)


@asynccontextmanager
async def grpc_server(answer: GrpcAnswer) -> AsyncIterator[GrpcServer]:
    """Serve OTLP's ``Export`` on a free port."""

    async def export(request: bytes, context: grpc.aio.ServicerContext) -> ExportTraceServiceResponse:
        received.requests.append(request)
        received.metadata.append(dict(context.invocation_metadata() or ()))
        if answer.status_details is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", answer.status_details),))
        if answer.code is not grpc.StatusCode.OK:
            await context.abort(answer.code, answer.details)
        return answer.response

    handler = grpc.unary_unary_rpc_method_handler(
        export, response_serializer=ExportTraceServiceResponse.SerializeToString
    )
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    received = GrpcServer(endpoint=f"127.0.0.1:{port}")
    await server.start()
    try:
        yield received
    finally:
        await server.stop(None)
