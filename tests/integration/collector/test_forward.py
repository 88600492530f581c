"""Pass-through: what comes in goes on unchanged and once, and no evaluation is ever evaluated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace import semconv
from ragtrace.traces.otlp import decode, encode_json
from ragtrace.traces.trace import Scope
from ragtrace_collector.service.collector import Collector
from tests.attack.back_end import Answer, running_back_end
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.integration.collector.running import (
    config_of,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.integration.collector.stepping import stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

UNKNOWN = b"\xa2\x1f\x02hi"
"""Field 500, which no message of OTLP has."""


def to(receiver: OtlpReceiver) -> list[dict[str, object]]:
    """Return an export section that forwards."""
    return [{"endpoint": receiver.endpoint, "forward": True}]


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


async def test_json_goes_on_as_the_same_spans_without_carriers_among_them(tmp_path: Path) -> None:
    spans = rag_trace(0)
    own = replace(spans[0], trace_id=trace_id_of(1), scope=Scope(name=semconv.SCOPE_EVALUATION))
    with running_receiver() as downstream:
        config = config_of(tmp_path, export=to(downstream), sample={"ratio": 0.0})
        async with running_collector(config) as collector:
            body = encode_json([own, *spans]).encode()
            await post(collector, body, {"content-type": "application/json"})
            await until(lambda: len(downstream.spans) >= 3)
    assert tuple(decode(bytes_at(downstream))) == spans


async def test_what_a_person_mends_at_a_back_end_goes_out_then(tmp_path: Path) -> None:
    """A key that expired, or a path that is wrong, says nothing about the spans."""
    refusals = [Answer(status=status) for status in (401, 403, 404)]
    with running_back_end(lambda spans: refusals.pop(0) if refusals else Answer(took=spans)) as back_end:
        async with stepped_collector(config_of(tmp_path, export=[{"endpoint": back_end.url}])) as spans:
            await spans.send(*rag_trace(0))
            for _ in range(30):
                await spans.pass_time(1)
            told = (await spans.collector.pipeline.store.ledger()).outbox_items[back_end.url]
    assert back_end.times() == {trace_id_of(0): 1}
    assert told == {"put": 1, "waiting": 0, "delivered": 1}


# -- what comes back --------------------------------------------------------------------------------------
def without_scopes(request: ExportTraceServiceRequest) -> None:
    """Lose what instrumentation made the spans, as conversions to other formats do."""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            scope_spans.ClearField("scope")


async def settled(collector: Collector) -> None:
    """Wait until nothing moves any more."""
    await until(lambda: not len(collector.pipeline.assembly))
    async with asyncio.timeout(PATIENCE_S):
        while await collector.pipeline.store.unfinished(now_ns=collector.clock.now_ns()):  # noqa: ASYNC110 -- a store's
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("change", [lambda _: None, without_scopes], ids=["as it is", "without scopes"])
async def test_nothing_multiplies_however_often_it_comes_back(
    tmp_path: Path, change: Callable[[ExportTraceServiceRequest], None]
) -> None:
    """A relay sends all that it is sent to both, and does not look at it."""
    answers, rounds = 3, 5
    with running_receiver() as back_end:
        async with running_collector(config_of(tmp_path, export=to(back_end))) as collector:
            await send_grpc(collector, request_of(*(s for n in range(answers) for s in rag_trace(n))))
            await until(lambda: len(back_end.spans) == 4 * answers)
            for _ in range(rounds):
                for request in list(back_end.requests):
                    again = ExportTraceServiceRequest()
                    again.CopyFrom(request)
                    change(again)
                    await send_grpc(collector, again.SerializeToString())
                await settled(collector)
            counted = collector.counters.snapshot()
            assert (await collector.pipeline.store.ledger()).by_name()["judged"] == answers
    carriers = [span for span in back_end.spans if span.name.startswith(semconv.CARRIER_NAME_PREFIX)]
    assert len(carriers) == answers == counted["answers_judged"]
    assert counted["spans_own"] == answers * rounds
