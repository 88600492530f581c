"""The real Apache Kafka as a process (one broker in KRaft mode), and what tests write and read there."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from tests.backends.binary import required
from tests.backends.process import free_ports, running
from tests.integration.collector.certificates import Authority
from tests.patience import PATIENCE_S

USERNAME, PASSWORD = "ragtrace", "not-a-secret"
_MEMORY = "-Xmx256m"


@dataclass(slots=True, kw_only=True)
class Kafka:
    """A broker that runs. Its methods block."""

    broker: str
    """``127.0.0.1:port``, for whoever comes."""
    tls_broker: str
    """The same broker with TLS, for those with the username and the password."""
    ca: Path
    """The authority that signed its certificate."""
    process: subprocess.Popen[str]

    def create(self, topic: str, *, partitions: int = 1, **config: str) -> str:
        admin = self._admin()
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        for created in admin.create_topics([new]).values():
            created.result(PATIENCE_S)
        return topic

    def write(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        """Write messages, and return when the broker has them."""
        producer = Producer({"bootstrap.servers": self.broker, "acks": "all", "message.max.bytes": 1 << 26})
        failed: list[str] = []
        for value in values:
            producer.produce(
                topic,
                value=value,
                key=key,
                on_delivery=lambda error, _: failed.append(error.str()) if error else None,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert failed == []

    def write_traces(self, topic: str, *traces: Sequence[Span]) -> None:
        """Write traces as the kafka exporter does with ``partition_traces_by_id``: one a message, keyed."""
        for spans in traces:
            self.write(topic, encode(spans), key=spans[0].trace_id.encode())

    def read(self, topic: str, count: int) -> Sequence[Message]:
        """Return the first messages of a topic, once there are so many."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker,
                "group.id": f"reader-of-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "allow.auto.create.topics": True,
            }
        )
        metadata = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        consumer.assign([TopicPartition(topic, number, 0) for number in metadata.partitions])
        try:
            found: list[Message] = []
            while len(found) < count:
                found += consumer.consume(count - len(found), PATIENCE_S)
            assert [message.error() for message in found] == [None] * count
            return found
        finally:
            consumer.close()

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offsets that a group committed, by partition; none before the first commit."""
        consumer = Consumer({"bootstrap.servers": self.broker, "group.id": group})
        try:
            metadata = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
            places = [TopicPartition(topic, number) for number in metadata.partitions]
            found = consumer.committed(places, timeout=PATIENCE_S)
            return {each.partition: each.offset for each in found if each.offset >= 0}
        finally:
            consumer.close()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker, "log_level": 0})


def required_java() -> str:
    """Return the program that runs Kafka, or skip or fail the test as without any back end."""
    found = shutil.which("java")
    return str(
        required(
            Path(found or "java is not installed"),
            reason="the real Kafka needs Java: apt-get install default-jre-headless",
        )
    )


@contextmanager
def running_kafka(jars: Path, folder: Path, *, ports: Sequence[int] | None = None) -> Iterator[Kafka]:
    """Run a broker with an empty log in the folder, or with the log that an earlier one left there."""
    plain, sasl, tls, controller = ports or free_ports(4)
    settings, authority = folder / "server.properties", Authority(folder, "kafka-ca")
    settings.write_text(
        _settings(
            folder, _keystore(authority, folder), plain=plain, sasl=sasl, tls=tls, controller=controller
        )
    )
    java = [required_java(), _MEMORY, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    if not (folder / "data").exists():
        # a random id may begin with a hyphen, which the program takes for an option
        cluster = base64.urlsafe_b64encode(b"ragtrace" + os.urandom(8)).decode().rstrip("=")
        format_log = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
        subprocess.run(format_log, check=True, capture_output=True, timeout=PATIENCE_S)
    address = f"127.0.0.1:{plain}"

    def is_ready() -> bool:
        probe = AdminClient({"bootstrap.servers": address, "log_level": 0})
        try:
            return bool(probe.list_topics(timeout=1).brokers)
        except Exception:  # noqa: BLE001 -- it does not answer yet, for whatever reason
            return False

    with running(
        [*java, "kafka.Kafka", settings], env={}, ready=is_ready, log=folder / "kafka.log"
    ) as process:
        yield Kafka(
            broker=address,
            tls_broker=f"127.0.0.1:{tls}",
            ca=authority.ca,
            process=process,
        )


def _keystore(authority: Authority, folder: Path) -> Path:
    """Write a key and its certificate as the broker reads them: in PEM, the key in PKCS 8."""
    files, keystore = authority.issue("kafka"), folder / "keystore.pem"
    key = load_pem_private_key(files.key.read_bytes(), password=None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    keystore.write_bytes(pkcs8 + files.cert.read_bytes())
    return keystore


def _settings(folder: Path, keystore: Path, *, plain: int, sasl: int, tls: int, controller: int) -> str:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    user = f'user_{USERNAME}="{PASSWORD}";'
    clients = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{tls}"
    protocols = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={clients},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={clients}
listener.security.protocol.map={",".join(f"{name}:{name}" for name in protocols)},CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={login} {user}
listener.name.sasl_ssl.plain.sasl.jaas.config={login} {user}
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
log.dirs={folder / "data"}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.flush.interval.messages=1
"""
