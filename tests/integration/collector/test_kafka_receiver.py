"""The receiver of topics with the broker that librdkafka has for tests, in this process: without Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ragtrace.traces.otlp import encode
from ragtrace_collector.receive.intake import Intake, Receipt
from ragtrace_collector.store.records import StoreUnavailable
from tests.integration.collector.running import carriers_in, config_of, running_collector, until
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow  # a group takes three seconds to begin at this broker

BROKEN = b"\n\x00broken"


class Topic:
    """A topic of a broker in this process."""

    name = "spans"

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "-", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=30).brokers.values()
        self.broker = f"{broker.host}:{broker.port}"

    def write(self, *values: bytes) -> None:
        for value in values:
            self._producer.produce(self.name, value=value, key=b"k")
        assert self._producer.flush(30) == 0


@pytest.fixture
def topic() -> Topic:
    return Topic()


def settings(topic: Topic, **kafka: Any) -> dict[str, Any]:
    return {"kafka": {"brokers": topic.broker, "topics": topic.name, "dead_letter": None, **kafka}}


async def test_an_unexpected_error_makes_a_dead_letter_and_stops_nothing(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept = Intake.accept

    async def breaking(self: Intake, body: bytes, **others: Any) -> Receipt:
        if body == BROKEN:
            raise RuntimeError("it quotes what nobody may read")
        return await accept(self, body, **others)

    monkeypatch.setattr(Intake, "accept", breaking)
    topic.write(BROKEN, encode(rag_trace(0)))
    async with running_collector(config_of(tmp_path, receive=settings(topic))) as collector:
        await until(lambda: carriers_in(tmp_path / "out.jsonl"))
        await until(lambda: collector.counters.snapshot()["kafka_dead_letters"])
        (letter,) = await collector.pipeline.store.dead_letters(2)
        assert (letter.offset, letter.reason, letter.bytes) == (0, "error", len(BROKEN))
        assert collector.counters.snapshot()["stage_errors"] == 1
    assert "RuntimeError" in caplog.text


async def test_a_message_that_the_store_refuses_is_tried_until_it_is_kept(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, refusals = Intake.accept, iter(range(3))

    async def refusing(self: Intake, body: bytes, **others: Any) -> Receipt:
        if next(refusals, None) is not None:
            raise StoreUnavailable("full")
        return await accept(self, body, **others)

    monkeypatch.setattr(Intake, "accept", refusing)
    topic.write(encode(rag_trace(0)))
    async with running_collector(config_of(tmp_path, receive=settings(topic))) as collector:
        await until(lambda: carriers_in(tmp_path / "out.jsonl"))
        topic.write(encode(rag_trace(1)))
        await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == 2)
        counted = collector.counters.snapshot()
    assert (counted["kafka_pauses"], counted["kafka_messages"]) == (1, 2)


async def test_a_collector_stops_while_its_broker_is_away(tmp_path: Path) -> None:
    async with running_collector(
        config_of(tmp_path, receive={"kafka": {"brokers": "127.0.0.1:1", "topics": "spans"}})
    ) as collector:
        assert collector.kafka is not None
        await until(lambda: "refused" in str(collector.kafka and collector.kafka.state.trouble))
        readiness = await collector.vitals.readiness()
    assert readiness.is_ready
    assert "nothing is read from Kafka" in readiness.notes[0]
