"""Processes of a cluster under measurement, over one broker with topics of a few partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.backends.binary import required_binary
from tests.backends.kafka_server import Kafka
from tests.backends.process import eventually
from tests.benchmarks.measured import Server
from tests.benchmarks.pipeline import QUIET_S, Scores, environment
from tests.cluster.members import Member, cluster_config, create_topics
from tests.cluster.scene import Broker

__all__ = ["running_brokers", "running_member", "sections_of"]

PARTITIONS: Final = 4


@contextmanager
def running_brokers(folder: Path) -> Iterator[Kafka]:
    """Run a broker with the topics of a cluster."""
    logs = folder / "kafka"
    logs.mkdir()
    broker = Broker(required_binary("kafka"), logs)
    kafka = broker.start()
    try:
        create_topics(kafka, partitions=PARTITIONS)
        yield kafka
    finally:
        broker.stop()


@contextmanager
def running_member(kafka: Kafka, folder: Path, role: str, sections: Mapping[str, Any]) -> Iterator[Server]:
    """Run a process of the cluster. One that evaluates owns all shards before the block begins."""
    config = cluster_config(kafka.broker, **sections)
    member = Member(name=folder.name, role=role, folder=folder, config=config)
    with environment(OPENAI_API_KEY="none"):
        process = member.start()
    try:
        if role == "evaluate":
            eventually(
                lambda: member.page("/status")["kafka"]["partitions"] == PARTITIONS, what="every shard"
            )
        yield Server(name=role, pid=process.process.pid, protocol="grpc", port=process.grpc_port or 0)
    finally:
        member.kill()


def sections_of(stub: str, scores: Scores, *, at_once: int) -> Mapping[str, Any]:
    """Return what the processes are to do: judge by the stub, and send scores to the receiver."""
    return {
        "assemble": {"quiet_period": f"{QUIET_S}s"},
        "judge": {"use": "openai:stub", "base_url": f"{stub}/v1", "max_concurrency": at_once},
        "evaluate": {"concurrency": at_once},
        "export": [{"endpoint": scores.endpoint}],
    }
