"""Whatever a pipeline sends back to us: an evaluation is never evaluated, and nothing multiplies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.model import Sample
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.records import Job
from tests.backends.otelcol import OtelCol
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.process import free_ports
from tests.integration.collector.running import config_of, request_of, running_collector, send_grpc, until
from tests.integration.collector.stepping import stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import chat_span, rag_trace, trace_id_of

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


@pytest.mark.parametrize("quiet_period", ["50ms", "10m"], ids=["after they were judged", "at once"])
async def test_originals_that_come_back_are_forwarded_and_stored_once(
    tmp_path: Path, quiet_period: str
) -> None:
    times = {"assemble": {"quiet_period": quiet_period, "deadline": "10m"}, "drain_timeout": "0s"}
    with running_receiver() as back_end:
        export = [{"endpoint": back_end.endpoint, "forward": True}]
        async with running_collector(config_of(tmp_path, export=export, **times)) as collector:
            await send_grpc(collector, request_of(*rag_trace(0)))
            await until(lambda: len(back_end.spans) == (4 if quiet_period == "50ms" else 3))
            originals = back_end.requests[0].SerializeToString()
            for _ in range(ROUNDS):
                await send_grpc(collector, originals)
            assert collector.counters.snapshot()["spans_repeated"] == 3 * ROUNDS
            assert (await collector.pipeline.store.spans(trace_id_of(0))).slices == 1
        names = [span.name for span in back_end.spans]
    assert len([name for name in names if not name.startswith(semconv.CARRIER_NAME_PREFIX)]) == 3


@contextmanager
def looping_otelcol(otelcol: OtelCol, folder: Path, *, collector_port: int, back_end: str) -> Iterator[int]:
    """Run an OpenTelemetry Collector that sends all it gets to ragtrace and to a back end, unfiltered."""
    port, metrics = free_ports(2)
    config = folder / "loop.yaml"
    config.write_text(
        f"""
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters:
  otlp/ragtrace: {{endpoint: "127.0.0.1:{collector_port}", tls: {{insecure: true}}}}
  otlp/backend: {{endpoint: "{back_end}", tls: {{insecure: true}}}}
service:
  telemetry:
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {metrics}}}}}}}}}]}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [otlp/ragtrace, otlp/backend]}}}}
"""
    )
    with otelcol.run(config, env={}, listens_on=(port,)):
        yield port


def export_to(port: int, *spans: Span) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = TraceServiceStub(channel).Export(ExportTraceServiceRequest.FromString(request_of(*spans)))
        assert not answer.partial_success.rejected_spans


@pytest.mark.parametrize("forward", [False, True], ids=["", "forwarding"])
async def test_a_real_collector_that_sends_our_export_back_gets_each_carrier_once(
    tmp_path: Path, otelcol: OtelCol, forward: bool
) -> None:
    (ours,) = free_ports(1)
    with (
        running_receiver() as back_end,
        looping_otelcol(otelcol, tmp_path, collector_port=ours, back_end=back_end.endpoint) as theirs,
    ):
        config = config_of(
            tmp_path,
            receive={"grpc": f"127.0.0.1:{ours}"},
            assemble={"quiet_period": "1s"},
            export=[{"endpoint": f"127.0.0.1:{theirs}", "forward": forward}],
        )
        async with running_collector(config) as collector:
            for number in range(ANSWERS):
                await asyncio.to_thread(export_to, theirs, *rag_trace(number))
            await until(lambda: collector.counters.snapshot()["spans_own"] == ANSWERS)
            await settled(collector)
            counted: Any = collector.counters.snapshot()
        names = [span.name for span in back_end.spans]
    assert names.count("evaluation pass") == ANSWERS
    assert counted["answers_judged"] == ANSWERS
    assert len(names) == ANSWERS * (7 if forward else 4)


async def test_what_other_tools_evaluate_is_not_judged(tmp_path: Path) -> None:
    root, retrieval, generation = rag_trace(0)
    evaluator = replace(root, attributes={semconv.OI_KIND: semconv.OI_EVALUATOR}, name="Faithfulness")
    async with stepped_collector(config_of(tmp_path)) as spans:
        await spans.send(evaluator, retrieval, generation)
        await spans.pass_time(5)
        assert await spans.outcomes() == {}
    assert spans.carriers() == ()


async def test_a_judges_calls_that_somebody_traces_under_the_answer_are_not_judged(tmp_path: Path) -> None:
    root, retrieval, generation = rag_trace(0)
    evaluator = replace(
        generation, span_id="00000000000000e1", attributes={semconv.OPERATION_NAME: semconv.OP_EVALUATION}
    )
    call = replace(chat_span(0, question="Is it so?", answer="no"), span_id="00000000000000e2")
    judge_call = replace(call, parent_span_id=evaluator.span_id)
    async with stepped_collector(config_of(tmp_path)) as spans:
        await spans.send(root, retrieval, generation, evaluator, judge_call)
        await spans.pass_time(5)
        (carrier,) = spans.carriers()
        assert await spans.outcomes() == {"judged": 1}
    assert carrier.parent_span_id == root.span_id


async def test_an_evaluation_that_was_queued_is_not_judged_either(tmp_path: Path) -> None:
    root, retrieval, generation = rag_trace(0)
    evaluator = replace(root, attributes={semconv.OI_KIND: semconv.OI_EVALUATOR})
    job = Job(
        trace_id=root.trace_id,
        span_id=generation.span_id,
        sample=Sample(rule="ratio", rate=1.0, probability=1.0),
    )
    async with stepped_collector(config_of(tmp_path)) as spans:
        await spans.send(evaluator, retrieval, generation)
        await spans.collector.pipeline.store.decide_trace(
            root.trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=spans.clock.now_ns()
        )
        await spans.work()
        assert await spans.outcomes() == {"filtered:evaluation": 1}
        assert spans.collector.counters.snapshot()["evaluations_not_judged"] == 1
    assert spans.carriers() == ()
