"""Mail between shards over a real broker: kept in order, once, and put off while something is away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ragtrace.clock import SystemClock
from ragtrace.conversations.span import SessionName
from ragtrace.errors import SendRejected, SendRetryable
from ragtrace.traces.otlp import encode
from ragtrace_collector.config.kafka import KafkaConfig, KafkaStoreConfig
from ragtrace_collector.deliver.mail import decode_mail, encode_turn
from ragtrace_collector.receive.kafka import Destination, KafkaReceiver, OneDestination
from ragtrace_collector.receive.kafka_mail import MAIL_HEADER, MailSink
from ragtrace_collector.receive.kafka_producers import SpanProducer
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.port import KeptTurn, Mail, StoreUnavailable, WorkStore
from tests.backends.kafka_server import Kafka
from tests.backends.process import free_ports
from tests.integration.collector.running import config_of, running_collector, until
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

SHARDS = 3
NAME = SessionName(session="s")


def a_turn(number: int, *, supersedes: str = "", size: int = 0) -> KeptTurn:
    return KeptTurn(
        name=NAME,
        trace_id=f"{number:032x}",
        span_id="a1",
        start_ns=number,
        carrier_span_id=f"c{number}",
        supersedes=supersedes,
        turn=b"turn %d" % number + b"." * size,
        place=b"",
    )


@pytest.fixture
def producer(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[tuple[SpanProducer, str]]:
    """A producer, and its topic: one for each test."""
    topic = kafka.create(request.node.name, partitions=SHARDS)
    config = KafkaStoreConfig(brokers=(kafka.broker,), spans_topic=topic)
    found = SpanProducer(config, shards=SHARDS)
    yield found, topic
    found.close()


async def test_each_shard_gets_its_mail_in_order_in_messages_that_brokers_take(
    kafka: Kafka, producer: tuple[SpanProducer, str]
) -> None:
    sent, topic = producer
    lines = [encode_turn(a_turn(number, size=50_000), to=number % SHARDS) for number in range(60)]
    await MailSink(lambda: sent).send(b"".join(lines))
    found: dict[int, list[Mail]] = {}
    messages = await asyncio.to_thread(kafka.read, topic, 2 * SHARDS)
    for message in sorted(messages, key=lambda each: (each.partition() or 0, each.offset() or 0)):
        assert MAIL_HEADER in dict(message.headers() or [])
        assert message.key()
        mail = [each for each, _ in decode_mail(bytes(message.value() or b""))]
        found.setdefault(message.partition() or 0, []).extend(mail)
    for shard, mail in found.items():
        assert [each.turn and each.turn.start_ns for each in mail] == list(range(shard, 60, SHARDS))


async def test_mail_waits_while_brokers_are_away_and_is_refused_if_it_is_too_large(
    kafka: Kafka, producer: tuple[SpanProducer, str]
) -> None:
    sent, _ = producer
    with pytest.raises(SendRetryable):
        await MailSink(lambda: None).send(encode_turn(a_turn(1), to=0))
    with pytest.raises(SendRejected):
        await MailSink(lambda: sent).send(encode_turn(replace(a_turn(1), turn=os.urandom(2 << 20)), to=0))
    with pytest.raises(SendRejected):
        await MailSink(lambda: sent).send(b"secret")
    (port,) = free_ports(1)
    away = SpanProducer(KafkaStoreConfig(brokers=(f"127.0.0.1:{port}",)), shards=SHARDS)
    try:
        with pytest.raises(SendRetryable):
            await MailSink(lambda: away).send(encode_turn(a_turn(1), to=0))
    finally:
        await asyncio.to_thread(away.close)


class RefusingStore:
    """Refuses mail a few times, as a store whose disk is full."""

    def __init__(self, store: WorkStore, *, refusals: int) -> None:
        self._store = store
        self._refusals = iter(range(refusals))
        self.kept = 0
        """How much was new."""

    async def receive_mail(self, mail: Sequence[Mail], *, now_ns: int) -> int:
        if next(self._refusals, None) is not None:
            raise StoreUnavailable("full")
        new = await self._store.receive_mail(mail, now_ns=now_ns)
        self.kept += new
        return new


@asynccontextmanager
async def reading(
    collector: Collector, config: KafkaConfig, *, mail: RefusingStore | None
) -> AsyncIterator[KafkaReceiver]:
    """Read a topic beside a collector, into its store."""
    pipeline = collector.pipeline
    receiver = KafkaReceiver(
        config=config,
        max_message_bytes=1 << 20,
        destinations=OneDestination(Destination(intake=pipeline.intake, store=pipeline.store, mail=mail)),
        sender=lambda _: None,
        counters=collector.counters,
        clock=SystemClock(),
    )
    async with asyncio.TaskGroup() as tasks:
        receiver.start(tasks)
        yield receiver
        await receiver.stop()


def write_mail(kafka: Kafka, topic: str, *values: bytes | None) -> None:
    """Write messages that are marked as mail."""
    producer = Producer({"bootstrap.servers": kafka.broker, "acks": "all"})
    for value in values:
        producer.produce(topic, value=value, key=b"k", headers=[(MAIL_HEADER, b"1")])
    assert producer.flush(PATIENCE_S) == 0


async def test_mail_is_kept_in_order_and_once_and_what_is_none_becomes_a_dead_letter(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.create("mail-read")
    revised = replace(a_turn(2, supersedes="c1"), trace_id=a_turn(1).trace_id)
    first, second = encode_turn(a_turn(1), to=0), encode_turn(revised, to=0)
    write_mail(kafka, topic, first, b"secret", second, first + second, None)
    kafka.write_traces(topic, rag_trace(0))
    async with running_collector(config_of(tmp_path)) as collector:
        config = KafkaConfig(brokers=(kafka.broker,), topics=(topic,), dead_letter=None)
        store = collector.pipeline.store
        mail = RefusingStore(store, refusals=3)
        async with reading(collector, config, mail=mail):
            await until(lambda: collector.counters.snapshot()["spans_kept"])

            await until(lambda: mail.kept == 2)
            session = await store.sessions.session(NAME)
            assert session is not None
            assert [turn.turn for turn in session.turns] == [revised.turn]
            assert session.revision == 1
            assert (await store.ledger()).dead_letters == {"not_mail": 2}


async def test_a_topic_that_is_no_clusters_has_no_mail(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("mail-elsewhere")
    write_mail(kafka, topic, encode_turn(a_turn(1), to=0), encode(rag_trace(0)))
    async with running_collector(config_of(tmp_path)) as collector:
        config = KafkaConfig(brokers=(kafka.broker,), topics=(topic,), dead_letter=None)
        async with reading(collector, config, mail=None):
            await until(lambda: collector.counters.snapshot()["spans_kept"])
            await until(lambda: collector.counters.snapshot()["kafka_dead_letters"])
        assert await collector.pipeline.store.sessions.session(NAME) is None
        assert (await collector.pipeline.store.ledger()).dead_letters == {"not_otlp": 1}
