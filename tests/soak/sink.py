"""A back end that goes away for a while, and keeps of each carrier what it is compared by."""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragtrace import semconv
from tests.backends.process import free_ports

_UP_S, _DOWN_S = 40.0, 5.0


class SpanId(NamedTuple):
    """A span, in hex."""

    trace_id: str
    span_id: str


@dataclass(slots=True, kw_only=True)
class Arrived:
    """What came under the id of one carrier."""

    target: str
    """The span id of the answer that it is about."""
    scores: int
    digests: set[bytes] = field(default_factory=set)

    @property
    def forms(self) -> int:
        """How many different spans came under the id: one, however often it was sent."""
        return len(self.digests)


class FlakySink(TraceServiceServicer):
    """An OTLP/gRPC receiver on one port, up and down again. It may lose a share of what it acknowledges."""

    def __init__(self, *, loses: float = 0.0) -> None:
        (port,) = free_ports(1)
        self.endpoint = f"127.0.0.1:{port}"
        self.arrived: dict[SpanId, Arrived] = {}
        """By the carrier's ids: the same one may come twice."""
        self._loses = loses
        self._server: grpc.Server | None = None

    def Export(  # noqa: N802 -- the name in the proto file
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._keep(span)
        return ExportTraceServiceResponse()

    def _keep(self, span: Span) -> None:
        if span.span_id[0] < 256 * self._loses:
            return
        keys = [attribute.key for attribute in span.attributes]
        came = self.arrived.setdefault(
            SpanId(span.trace_id.hex(), span.span_id.hex()),
            Arrived(
                target=span.parent_span_id.hex(),
                scores=sum(key.startswith(semconv.SCORE_PREFIX) for key in keys),
            ),
        )
        came.digests.add(hashlib.sha256(span.SerializeToString(deterministic=True)).digest()[:8])

    def start(self) -> None:
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
