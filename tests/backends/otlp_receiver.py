"""An OTLP receiver that keeps what it is sent: stands in for whatever is downstream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

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

from tests.patience import PATIENCE_S


class OtlpReceiver(TraceServiceServicer):
    """Keeps the export requests it gets by gRPC, in order of arrival."""

    def __init__(self) -> None:
        self.endpoint = ""
        """``127.0.0.1:port``."""
        self.requests: list[ExportTraceServiceRequest] = []
        self._arrived = threading.Condition()

    def Export(  # noqa: N802 - the name in the proto file
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        return ExportTraceServiceResponse()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def wait_for_spans(self, count: int, *, deadline_s: float = PATIENCE_S) -> list[Span]:
        """Return the spans once there are so many. Blocks: call it in a thread from async tests."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.spans) >= count, timeout=deadline_s):
                raise TimeoutError(f"{self.endpoint} got {len(self.spans)} of {count} spans")
        return self.spans


@contextmanager
def running_receiver(endpoint: str = "127.0.0.1:0") -> Iterator[OtlpReceiver]:
    """Run a receiver, on a free loopback port unless told otherwise."""
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    receiver.endpoint = f"127.0.0.1:{server.add_insecure_port(endpoint)}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(grace=None).wait(timeout=PATIENCE_S)
