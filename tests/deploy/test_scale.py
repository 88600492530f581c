"""examples/scale: each file checked by the program that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ragtrace_collector.config.kafka import KafkaConfig
from tests.backends.otelcol import OtelCol

SCALE = Path(__file__).parents[2] / "examples" / "scale"


def test_the_opentelemetry_collector_takes_the_file_for_kafka(otelcol: OtelCol) -> None:
    done = otelcol.validate(SCALE / "otelcol-kafka.yaml")
    assert done.returncode == 0, done.stderr


def test_its_topic_is_the_one_that_ragtrace_reads() -> None:
    exporter = yaml.safe_load((SCALE / "otelcol-kafka.yaml").read_text())["exporters"]["kafka"]
    kafka = KafkaConfig(brokers=("127.0.0.1:9092",))
    assert exporter["partition_traces_by_id"] is True
    assert exporter["traces"] == {"topic": kafka.topics[0], "encoding": kafka.encoding}


def test_the_opentelemetry_collector_takes_the_file_for_load_balancing(balancing_otelcol: OtelCol) -> None:
    done = balancing_otelcol.validate(SCALE / "otelcol-loadbalancing.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["otelcol-kafka.yaml", "otelcol-loadbalancing.yaml"])
def test_a_collector_in_front_keeps_carriers_from_being_judged(name: str) -> None:
    config = yaml.safe_load((SCALE / name).read_text())
    assert "filter/carriers" in config["service"]["pipelines"]["traces/ragtrace"]["processors"]
    assert "filter/carriers" not in config["service"]["pipelines"]["traces/backend"]["processors"]
