"""The files of examples/scale at work: real processes, a real Kafka, an OpenTelemetry Collector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
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


def send(port: int, name: str) -> None:
    """Send traces with ids that are always the same, by gRPC."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        export = channel.unary_unary(EXPORT)
        for number in range(TRACES):
            trace_id = hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:32]
            spans = [replace(span, trace_id=trace_id) for span in rag_trace(number)]
            export(encode(spans), timeout=PATIENCE_S)


def judged(back_end: OtlpReceiver) -> Sequence[str]:
    """The traces of the carriers that arrived."""
    return [
        span.trace_id.hex()
        for span in back_end.spans
        if any(attribute.key == SCORE for attribute in span.attributes)
    ]


def wait_for_verdicts(back_end: OtlpReceiver) -> None:
    """Wait until one answer in ten was judged, about: the ids are always the same."""
    eventually(lambda: len(judged(back_end)) >= 3, what="carriers")
    assert len(judged(back_end)) == len(set(judged(back_end)))
    assert len(judged(back_end)) <= TRACES / 3


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
        wait_for_verdicts(back_end)


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
        wait_for_verdicts(back_end)
        eventually(
            lambda: len({span.trace_id for span in back_end.spans}) == TRACES,
            what="every span at the back end",
        )
