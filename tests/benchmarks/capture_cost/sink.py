"""A receiver that counts spans and throws them away: ``python -m tests.benchmarks.capture_cost.sink``."""

from __future__ import annotations

import gzip
import itertools
import json
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_batches: list[int] = []


def main() -> None:
    """Print the ports, then serve until the process is ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    rpc = grpc.server(futures.ThreadPoolExecutor(2))
    rpc.add_generic_rpc_handlers((_Export(),))
    grpc_port = rpc.add_insecure_port("127.0.0.1:0")
    rpc.start()
    print(json.dumps([server.server_port, grpc_port]), flush=True)
    server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._reply(json.dumps(sum(_batches)).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/traces"):
            _count(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
        self._reply(b"")

    def log_message(self, *args: object) -> None:
        pass

    def _reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Export(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # the class takes none as it runs
    def service(self, call: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(_exported) if call.method == EXPORT else None


def _exported(body: bytes, context: object) -> bytes:
    _count(body)
    return ExportTraceServiceResponse().SerializeToString()


def _count(body: bytes) -> None:
    request = ExportTraceServiceRequest.FromString(body)
    scopes = itertools.chain.from_iterable(resource.scope_spans for resource in request.resource_spans)
    _batches.append(sum(len(scope.spans) for scope in scopes))


if __name__ == "__main__":
    main()
