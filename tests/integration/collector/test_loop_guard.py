"""Whatever a pipeline sends back to us: an evaluation is never evaluated, and nothing multiplies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace_collector.service.collector import Collector
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.integration.collector.running import config_of, request_of, running_collector, send_grpc, until
from tests.integration.collector.stepping import stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

ROUNDS = 5
ANSWERS = 3


class Relay:
    """Stands between applications, back end and collector, and sends everything to both."""

    def __init__(self, back_end: OtlpReceiver) -> None:
        self.back_end = back_end
        self.collector: Collector | None = None

    @property
    def carriers(self) -> list[trace_pb2.Span]:
        return [span for span in self.back_end.spans if span.name.startswith(semconv.CARRIER_NAME_PREFIX)]

    async def send_all_again(self, change: Callable[[ExportTraceServiceRequest], None]) -> None:
        """Send the collector everything that ever came here."""
        assert self.collector is not None
        for request in list(self.back_end.requests):
            copy = ExportTraceServiceRequest()
            copy.CopyFrom(request)
            change(copy)
            await send_grpc(self.collector, copy.SerializeToString())


@asynccontextmanager
async def relayed(folder: Path, *, forward: bool) -> AsyncIterator[Relay]:
    """Run a collector whose only export is a relay that does not look at what it is given."""
    with running_receiver() as back_end:
        relay = Relay(back_end)
        export = [{"endpoint": back_end.endpoint, "forward": forward}]
        async with running_collector(config_of(folder, export=export)) as collector:
            relay.collector = collector
            yield relay


def as_it_is(_request: ExportTraceServiceRequest) -> None: ...


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


@pytest.mark.parametrize("change", [as_it_is, without_scopes])
@pytest.mark.parametrize("forward", [False, True], ids=["", "forwarding"])
async def test_carriers_do_not_multiply_however_often_they_come_back(
    tmp_path: Path, forward: bool, change: Callable[[ExportTraceServiceRequest], None]
) -> None:
    async with relayed(tmp_path, forward=forward) as relay:
        assert relay.collector is not None
        await send_grpc(relay.collector, request_of(*(s for n in range(ANSWERS) for s in rag_trace(n))))
        await until(lambda: len(relay.carriers) == ANSWERS)
        for _ in range(ROUNDS):
            await relay.send_all_again(change)
            await settled(relay.collector)
        counted = relay.collector.counters.snapshot()
        assert (await relay.collector.pipeline.store.ledger()).by_name()["judged"] == ANSWERS
    assert len(relay.carriers) == ANSWERS
    assert counted["spans_own"] == ANSWERS * ROUNDS
    assert counted["answers_judged"] == ANSWERS


async def test_what_other_tools_evaluate_is_not_judged(tmp_path: Path) -> None:
    root, retrieval, generation = rag_trace(0)
    evaluator = replace(root, attributes={semconv.OI_KIND: semconv.OI_EVALUATOR}, name="Faithfulness")
    async with stepped_collector(config_of(tmp_path)) as spans:
        await spans.send(evaluator, retrieval, generation)
        await spans.pass_time(5)
        assert await spans.outcomes() == {}
    assert spans.carriers() == ()
