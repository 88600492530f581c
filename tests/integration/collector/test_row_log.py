"""The log of rows in a real Kafka: its owner, its readers, and brokers that are away."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.changelog.kafka import KafkaLogReader, KafkaRowLog
from ragtrace_collector.store.changelog.log import (
    LogDamaged,
    LoggedRow,
    LogLost,
    LogUnavailable,
)
from ragtrace_collector.store.changelog.store import follow, open_logged_store
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.store.sqlite import SqliteStore
from tests.backends.kafka_server import Kafka, running_kafka
from tests.backends.process import free_ports
from tests.patience import PATIENCE_S
from tests.stores.dump import dump

NUMBERS = count()
SINK = "back end"


class Shard:
    """A topic with one partition, and its owners and readers."""

    def __init__(self, broker: str, topic: str) -> None:
        self.settings = {"bootstrap.servers": broker}
        self.topic = topic

    def log(self) -> KafkaRowLog:
        return KafkaRowLog(self.settings, topic=self.topic, partition=0, transactional_id=f"{self.topic}-0")

    def reader(self) -> KafkaLogReader:
        return KafkaLogReader(self.settings, topic=self.topic, partition=0)

    async def open(self, path: Path) -> SqliteStore:
        return await open_logged_store(path, self.log(), max_bytes=64 << 20, forward_to=[SINK])


@pytest.fixture
def shard(kafka: Kafka) -> Shard:
    topic = f"state-{os.getpid()}-{next(NUMBERS)}"
    return Shard(kafka.broker, kafka.create(topic, **{"cleanup.policy": "compact"}))


def opened(log: KafkaRowLog) -> KafkaRowLog:
    log.open()
    return log


def part(number: int) -> TraceSlice:
    trace_id = f"{number:032x}"
    ref = SpanRef(span_id=f"{number:016x}", parent_span_id=None)
    return TraceSlice(trace_id=trace_id, payload=f"spans of {trace_id}".encode(), spans=(ref,))


async def add(store: SqliteStore, *numbers: int) -> None:
    for number in numbers:
        await store.append([part(number)], forward={SINK: b"x"}, now_ns=number)


def rows_in(log: KafkaLogReader, after: int = 0) -> list[LoggedRow]:
    return [row for batch in log.read(after) for row in batch.rows]


def row(number: int, values: tuple[bytes, ...] | None = (b"value",)) -> LoggedRow:
    return LoggedRow("table", (number, "ä", b"\xff", None), values)


def test_what_is_written_is_read_again_with_its_types(shard: Shard) -> None:
    rows = [
        LoggedRow("a", ("k", 1, b"\x00"), (None, 1.5, -(1 << 63), "ä\0", b"", "")),
        LoggedRow("a", ("all columns are the key",), ()),
        LoggedRow("a", ("gone",), None),
    ]
    log = opened(shard.log())
    position = log.write(rows)
    assert rows_in(shard.reader()) == rows
    assert rows_in(shard.reader(), position) == []


def test_a_second_owner_fences_the_first(shard: Shard) -> None:
    first = opened(shard.log())
    first.write([row(1)])
    second = opened(shard.log())
    with pytest.raises(LogLost, match="another process owns"):
        first.write([row(2)])
    with pytest.raises(LogLost):
        first.write([row(3)])
    second.write([row(4)])
    assert rows_in(second) == [row(1), row(4)]


def test_what_an_owner_had_begun_is_ended_by_the_next(shard: Shard) -> None:
    paused = Producer({**shard.settings, "transactional.id": f"{shard.topic}-0"})
    paused.init_transactions(PATIENCE_S)
    paused.begin_transaction()
    paused.produce(shard.topic, b"never read", b"key", 0)
    paused.flush(PATIENCE_S)
    owner = opened(shard.log())
    assert rows_in(owner) == []
    owner.write([row(1)])
    assert rows_in(owner) == [row(1)]


def test_the_last_batch_says_where_reading_goes_on(shard: Shard) -> None:
    log = opened(shard.log())
    for number in range(3):
        log.write([row(number)])
    (batch,) = log.read(0)
    assert (batch.position, log.look().end) == (6, 6)
    assert batch.places == [0, 2, 4]


def test_a_message_that_is_no_row_is_named(kafka: Kafka, shard: Shard) -> None:
    kafka.write(shard.topic, b"text", key=b"no array")
    with pytest.raises(LogDamaged, match=rf"'{shard.topic}', partition 0: the message at offset 0 is no row"):
        rows_in(shard.reader())


def test_a_row_that_the_topic_does_not_take_is_named_and_the_next_one_is_written(kafka: Kafka) -> None:
    topic = kafka.create(
        f"small-{os.getpid()}", **{"cleanup.policy": "compact", "max.message.bytes": "100000"}
    )
    log = opened(Shard(kafka.broker, topic).log())
    with pytest.raises(LogUnavailable, match=r"a row of 'table' has 200\d\d\d bytes.*max.message.bytes"):
        log.write([row(1), row(2, (b"x" * 200_000,))])
    log.write([row(3)])
    assert rows_in(log) == [row(3)]


async def test_spans_that_the_topic_does_not_take_keep_no_others_out(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create(f"low-{os.getpid()}", **{"cleanup.policy": "compact", "max.message.bytes": "200000"})
    store = await Shard(kafka.broker, topic).open(tmp_path / "copy.db")
    ref = SpanRef(span_id="1" * 16, parent_span_id=None)
    large = TraceSlice(trace_id="f" * 32, payload=os.urandom(300_000), spans=(ref,))
    results = await asyncio.gather(
        add(store, 1), store.append([large], forward={}, now_ns=1), add(store, 2), return_exceptions=True
    )
    assert [type(each) for each in results] == [type(None), StoreUnavailable, type(None)]
    assert "larger than a message of the log" in str(results[1])
    await store.aclose()


async def test_a_store_without_its_file_is_what_it_was(shard: Shard, tmp_path: Path) -> None:
    store = await shard.open(tmp_path / "first.db")
    await add(store, *range(20))
    await store.aclose()
    again = await shard.open(tmp_path / "second.db")
    await again.aclose()
    assert dump(tmp_path / "first.db") == dump(tmp_path / "second.db")


async def test_an_owner_that_was_paused_can_keep_nothing_more(shard: Shard, tmp_path: Path) -> None:
    paused = await shard.open(tmp_path / "paused.db")
    await add(paused, 1)
    owner = await shard.open(tmp_path / "owner.db")
    with pytest.raises(StoreUnavailable, match="another process owns"):
        await add(paused, 2)
    await asyncio.wait_for(paused.lost.wait(), PATIENCE_S)
    with pytest.raises(StoreUnavailable):
        await add(paused, 3)
    await add(owner, 4)
    assert await owner.find_traces("", limit=9) == tuple(part(number).trace_id for number in (1, 4))
    await paused.aclose()
    await owner.aclose()
    back = await shard.open(tmp_path / "paused.db")
    assert await back.find_traces("", limit=9) == tuple(part(number).trace_id for number in (1, 4))
    await back.aclose()


async def test_a_reader_follows_while_the_owner_writes(shard: Shard, tmp_path: Path) -> None:
    store = await shard.open(tmp_path / "owner.db")
    for number in range(3):
        await add(store, number)
        await asyncio.to_thread(follow, tmp_path / "copy.db", shard.reader())
        assert dump(tmp_path / "copy.db") == dump(tmp_path / "owner.db")
    await store.aclose()


async def test_a_log_that_another_program_wrote_is_refused(
    kafka: Kafka, shard: Shard, tmp_path: Path
) -> None:
    kafka.write(shard.topic, b"text", key=b"no array")
    with pytest.raises(ConfigError, match="at offset 0"):
        await shard.open(tmp_path / "copy.db")


async def test_a_topic_that_does_not_exist_is_waited_for(kafka: Kafka, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await Shard(kafka.broker, "nowhere").open(tmp_path / "copy.db")


@pytest.fixture
def ports() -> list[int]:
    return free_ports(4)


@pytest.mark.long
async def test_nothing_is_lost_or_invented_while_the_broker_is_away(
    kafka_jars: Path, tmp_path: Path, ports: list[int]
) -> None:
    (home := tmp_path / "kafka").mkdir()
    with running_kafka(kafka_jars, home, ports=ports) as kafka:
        shard = Shard(kafka.broker, kafka.create("state", **{"cleanup.policy": "compact"}))
        store = await shard.open(tmp_path / "copy.db")
        await add(store, 1)
    with pytest.raises(StoreUnavailable):
        await add(store, 2)
    with running_kafka(kafka_jars, home, ports=ports):
        while True:
            try:
                await add(store, 3)
                break
            except StoreUnavailable:
                if store.lost.is_set():
                    await store.aclose()
                    store = await shard.open(tmp_path / "copy.db")
        assert await store.find_traces("", limit=9) == tuple(part(number).trace_id for number in (1, 3))
        await store.aclose()
        anew = await shard.open(tmp_path / "anew.db")
        await anew.aclose()
    assert dump(tmp_path / "copy.db") == dump(tmp_path / "anew.db")
