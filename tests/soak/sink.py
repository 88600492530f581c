"""A back end that goes away for a while, and counts what it gets: it keeps ids alone."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from tests.backends.process import free_ports

__all__ = ["FlakySink"]

_UP_S, _DOWN_S = 40.0, 5.0


class FlakySink(TraceServiceServicer):
    """An OTLP/gRPC receiver on one port, up and down again."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self.endpoint = f"127.0.0.1:{port}"
        self.carriers: set[bytes] = set()
        """Span ids: the same carrier may come twice."""
        self._server: grpc.Server | None = None

    def Export(  # noqa: N802 -- the name in the proto file
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.carriers.update(span.trace_id + span.span_id for span in scope.spans)
        return ExportTraceServiceResponse()

    def start(self) -> None:
        """Listen."""
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2))
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(self.endpoint)
        self._server.start()

    def stop(self) -> None:
        """Go away: connections are cut."""
        if self._server is not None:
            self._server.stop(grace=None).wait(timeout=10)
            self._server = None

    async def come_and_go(self) -> None:
        """Be up and down by turns, until cancelled; then up."""
        try:
            while True:
                await asyncio.sleep(_UP_S)
                await asyncio.to_thread(self.stop)
                await asyncio.sleep(_DOWN_S)
                await asyncio.to_thread(self.start)
        finally:
            if self._server is None:
                self.start()
