"""`ragtrace doctor` on the topics of a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backends.kafka_server import Kafka
from tests.backends.process import eventually, free_ports
from tests.integration.cli.program import run

pytestmark = pytest.mark.slow


def topics_of(folder: Path, broker: str) -> dict[str, tuple[str, str]]:
    """Return what doctor says of each topic, or of all of them."""
    file = folder / "collector.yaml"
    kafka = {"brokers": broker, "topics": ["spans", "compacted", "absent"], "dead_letter": None}
    config = {"receive": {"grpc": None, "http": None, "kafka": kafka}, "store": str(folder / "store.db")}
    file.write_text(json.dumps(config))
    checks = map(json.loads, run("doctor", "--config", str(file), "--json").stdout.splitlines())
    return {
        each["name"]: (each["status"], each["found"]) for each in checks if each["name"].startswith("topic")
    }


def test_doctor_says_which_topics_lack_or_lose_messages(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("spans", partitions=4)
    kafka.create("compacted", partitions=1, **{"cleanup.policy": "compact"})
    why = "`cleanup.policy` is compact: of messages with one key, only the last would stay"
    expected = {
        "topic spans": ("ok", "4 partitions"),
        "topic compacted": ("fail", why),
        "topic absent": ("fail", "it does not exist"),
    }
    eventually(lambda: topics_of(tmp_path, kafka.broker) == expected, what="the topics")
    assert topics_of(tmp_path, kafka.broker) == expected, "to ask made none"


@pytest.mark.night
def test_doctor_says_that_no_broker_answers(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    [(name, (status, found))] = topics_of(tmp_path, f"127.0.0.1:{port}").items()
    assert (name, status) == ("topics", "fail")
    assert "brokers" in found
