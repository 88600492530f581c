"""Pass-through: what comes in goes on unchanged, in order, and one back end does not hold up another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace import semconv
from ragtrace.traces.otlp import decode, encode_json
from ragtrace.traces.trace import Scope
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.integration.collector.running import (
    config_of,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import rag_trace, trace_id_of

UNKNOWN = b"\xa2\x1f\x02hi"
"""Field 500, which no message of OTLP has."""


def to(*receivers: OtlpReceiver) -> list[dict[str, object]]:
    """Return an export section that forwards to each."""
    return [{"endpoint": receiver.endpoint, "forward": True} for receiver in receivers]


def bytes_at(receiver: OtlpReceiver) -> bytes:
    return b"".join(request.SerializeToString() for request in receiver.requests)


async def test_requests_go_on_byte_for_byte_in_the_order_of_their_acknowledgements(tmp_path: Path) -> None:
    bodies = [request_of(*rag_trace(number)) + UNKNOWN for number in range(40)]
    with running_receiver() as downstream:
        config = config_of(tmp_path, export=to(downstream), sample={"ratio": 0.0})
        async with running_collector(config) as collector:
            for body in bodies:
                await send_grpc(collector, body)
            await until(lambda: len(downstream.spans) >= 120)
    # several requests may travel as one: put one after the other, they are the same message
    merged = ExportTraceServiceRequest.FromString(b"".join(bodies))
    assert ExportTraceServiceRequest.FromString(bytes_at(downstream)) == merged


async def test_json_goes_on_as_the_same_spans(tmp_path: Path) -> None:
    text = encode_json(rag_trace(0))
    with running_receiver() as downstream:
        async with running_collector(config_of(tmp_path, export=to(downstream))) as collector:
            await post(collector, text.encode(), {"content-type": "application/json"})
            await until(lambda: len(downstream.spans) >= 3)
    assert tuple(decode(downstream.requests[0].SerializeToString())) == rag_trace(0)


async def test_own_carriers_beside_others_spans_are_taken_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    spans = rag_trace(0)
    own = replace(spans[0], trace_id=trace_id_of(1), scope=Scope(name=semconv.SCOPE_EVALUATION))
    with running_receiver() as downstream:
        config = config_of(tmp_path, export=to(downstream), sample={"ratio": 0.0})
        async with running_collector(config) as collector:
            await post(collector, request_of(own, *spans))
            await until(lambda: len(downstream.spans) >= 3)
    assert tuple(decode(bytes_at(downstream))) == spans
