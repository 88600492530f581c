"""The files of examples/scale at work: real processes, a real Kafka, an OpenTelemetry Collector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import yaml

from ragtrace import semconv
from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.kafka_server import Kafka, running_kafka
from tests.backends.otelcol import OtelCol
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.process import eventually, free_ports
from tests.cluster.members import create_topics
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCALE = Path(__file__).parents[2] / "examples" / "scale"
SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TRACES = 60


@pytest.fixture(scope="module")
def broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker of its own: the examples name their topics."""
    with running_kafka(kafka_jars, tmp_path_factory.mktemp("kafka")) as kafka:
        create_topics(kafka, partitions=3)
        yield kafka


@pytest.fixture
def back_end() -> Iterator[OtlpReceiver]:
    with running_receiver() as receiver:
        yield receiver


def process(
    folder: Path, role: str, variables: dict[str, str], patch: pytest.MonkeyPatch
) -> AbstractContextManager[CollectorProcess]:
    """Run a process with a file of the example, and these variables."""
    config = yaml.safe_load((SCALE / f"{role}.yaml").read_text())
    folder.mkdir()
    for name, value in variables.items():
        patch.setenv(name, value)
    return collector_process(folder, config)


def evaluator(
    folder: Path, broker: Kafka, back_end: OtlpReceiver, patch: pytest.MonkeyPatch
) -> AbstractContextManager[CollectorProcess]:
    variables = {
        "KAFKA": broker.broker,
        "RAGTRACE_EXPORT": f"grpc://{back_end.endpoint}",
        "RAGTRACE_INSTANCE": folder.name,
        "RAGTRACE_JUDGE": "lexical",
        "RAGTRACE_PAGES": "127.0.0.1:0",
        "RAGTRACE_SHARDS": str(folder / "shards"),
    }
    return process(folder, "evaluate", variables, patch)


def trace_ids(name: str) -> Sequence[str]:
    """Return the ids of the traces that a test sends: always the same, and its own in the topic of all."""
    return [hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:32] for number in range(TRACES)]


def send(port: int, name: str, *, apart: bool = False) -> int:
    """Send the traces by gRPC, and each span apart if asked to.

    Returns the number of spans.
    """
    sent = 0
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        export = channel.unary_unary(EXPORT)
        for number, trace_id in enumerate(trace_ids(name)):
            spans = [replace(span, trace_id=trace_id) for span in rag_trace(number)]
            for request in [[span] for span in spans] if apart else [spans]:
                export(encode(request), timeout=PATIENCE_S)
                sent += len(request)
    return sent


def judged(back_end: OtlpReceiver, name: str) -> Sequence[str]:
    """Return the traces of the carriers that arrived.

    An evaluator also delivers what the one of the test before left behind: those are not these traces.
    """
    sent = {*trace_ids(name)}
    return [
        span.trace_id.hex()
        for span in back_end.spans
        if any(attribute.key == SCORE for attribute in span.attributes) and span.trace_id.hex() in sent
    ]


def wait_for_verdicts(back_end: OtlpReceiver, name: str) -> None:
    """Wait until one answer in ten was judged, about: the ids are always the same."""
    eventually(lambda: len(judged(back_end, name)) >= 3, what="carriers")
    assert len(judged(back_end, name)) == len(set(judged(back_end, name)))
    assert len(judged(back_end, name)) <= TRACES / 3


def test_spans_of_an_ingest_process_are_judged_by_an_evaluate_process(
    broker: Kafka, back_end: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    variables = {
        "KAFKA": broker.broker,
        "RAGTRACE_EXPORT": f"grpc://{back_end.endpoint}",
        "RAGTRACE_GRPC": f"127.0.0.1:{port}",
        "RAGTRACE_PAGES": "127.0.0.1:0",
    }
    with (
        process(tmp_path / "ingest", "ingest", variables, monkeypatch),
        evaluator(tmp_path / "evaluate", broker, back_end, monkeypatch),
    ):
        send(port, "by otlp")
        wait_for_verdicts(back_end, "by otlp")


def test_spans_that_an_opentelemetry_collector_writes_are_judged(
    broker: Kafka,
    back_end: OtlpReceiver,
    otelcol: OtelCol,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (port,) = free_ports(1)
    variables = {
        "KAFKA": broker.broker,
        "OTELCOL_OTLP_GRPC": f"127.0.0.1:{port}",
        "TRACES_ENDPOINT": back_end.endpoint,
    }
    with (
        otelcol.run(SCALE / "otelcol-kafka.yaml", env=variables, listens_on=[port]),
        evaluator(tmp_path / "evaluate", broker, back_end, monkeypatch),
    ):
        send(port, "by topic")
        wait_for_verdicts(back_end, "by topic")
        eventually(
            lambda: {*trace_ids("by topic")} <= {span.trace_id.hex() for span in back_end.spans},
            what="every span at the back end",
        )


@contextmanager
def balancing(otelcol: OtelCol, folder: Path, back_end: OtlpReceiver, ports: Sequence[int]) -> Iterator[int]:
    """Run the load-balancing collector in front of these ports; yield its own."""
    config = yaml.safe_load((SCALE / "otelcol-loadbalancing.yaml").read_text())
    config["exporters"]["loadbalancing"]["resolver"]["static"]["hostnames"] = [
        f"127.0.0.1:{port}" for port in ports
    ]
    file = folder / "otelcol-loadbalancing.yaml"
    file.write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    variables = {"OTELCOL_OTLP_GRPC": f"127.0.0.1:{port}", "TRACES_ENDPOINT": back_end.endpoint}
    with otelcol.run(file, env=variables, listens_on=[port]):
        yield port


def test_a_balancing_collector_sends_all_spans_of_a_trace_to_one_of_three(
    balancing_otelcol: OtelCol, back_end: OtlpReceiver, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        receivers = [stack.enter_context(running_receiver()) for _ in range(3)]
        ports = [int(each.endpoint.rpartition(":")[2]) for each in receivers]
        port = stack.enter_context(balancing(balancing_otelcol, tmp_path, back_end, ports))
        sent = send(port, "apart", apart=True)
        eventually(lambda: sum(len(each.spans) for each in receivers) == sent, what="every span")
        traces = [{span.trace_id for span in each.spans} for each in receivers]
    assert all(traces)
    assert sum(map(len, traces)) == len(set.union(*traces)) == TRACES


def test_spans_that_a_balancing_collector_spreads_over_three_ingest_processes_are_judged(
    broker: Kafka,
    back_end: OtlpReceiver,
    balancing_otelcol: OtelCol,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = free_ports(3)
    variables = {
        "KAFKA": broker.broker,
        "RAGTRACE_EXPORT": f"grpc://{back_end.endpoint}",
        "RAGTRACE_PAGES": "127.0.0.1:0",
    }
    with ExitStack() as stack:
        for port in ports:
            own = {**variables, "RAGTRACE_GRPC": f"127.0.0.1:{port}"}
            stack.enter_context(process(tmp_path / f"ingest-{port}", "ingest", own, monkeypatch))
        stack.enter_context(evaluator(tmp_path / "evaluate", broker, back_end, monkeypatch))
        port = stack.enter_context(balancing(balancing_otelcol, tmp_path, back_end, ports))
        send(port, "balanced", apart=True)
        wait_for_verdicts(back_end, "balanced")
