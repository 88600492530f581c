"""The budget that processes share over a real Kafka."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ragtrace.budget import Budget, BudgetUnavailable, ExceededLimit, Limit, Period, Reservation, Spend
from ragtrace.budget.reserve import status
from ragtrace.errors import ReadError, ReadUnavailable
from ragtrace_collector.store.budget_log.kafka import kafka_budget, open_kafka_budget, read_budget
from ragtrace_collector.store.budget_log.ledger import LoggedBudget
from tests.backends.kafka_server import PASSWORD, USERNAME, Kafka, running_kafka
from tests.backends.process import free_ports
from tests.integration.collector.running import until
from tests.patience import PATIENCE_S
from tests.stores.budget_spender import NOON, shared_budget

ROOT = Path(__file__).parents[3]
ONE = Spend(calls=1)
LIVE = Budget(name="live", limits={Period.DAY: Limit(calls=1_000)})


def settings(kafka: Kafka) -> dict[str, object]:
    return {"bootstrap.servers": kafka.broker}


def budget_topic(kafka: Kafka, name: str) -> str:
    return kafka.create(f"{name}.budget", **{"cleanup.policy": "delete", "retention.ms": "-1"})


@asynccontextmanager
async def opened(broker: str, topic: str, *, wait_s: float = PATIENCE_S) -> AsyncIterator[LoggedBudget]:
    budget = kafka_budget({"bootstrap.servers": broker}, topic, client="test", checkpoint_every=10)
    await budget.open(wait_s=wait_s)
    try:
        yield budget
    finally:
        await budget.aclose()


def spent(kafka: Kafka, topic: str, of: Budget = LIVE) -> list[int]:
    return [left.spent for left in status(read_budget(settings(kafka), topic), of, now_ns=NOON).left()]


def first_offset(kafka: Kafka, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.broker, "group.id": "looks"})
    first, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    consumer.close()
    return first


@contextmanager
def spender(kafka: Kafka, topic: str, limit: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.stores.budget_spender", kafka.broker, topic, str(limit)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_of(process: subprocess.Popen[str], until_line: str) -> list[str]:
    """Return what a process says up to a line."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.strip())
        if lines[-1] == until_line:
            break
    return lines


@pytest.mark.slow
def test_three_processes_of_which_one_is_killed_grant_exactly_the_limit(kafka: Kafka) -> None:
    topic, limit = budget_topic(kafka, "three"), 300
    with ExitStack() as running:
        processes = [running.enter_context(spender(kafka, topic, limit)) for _ in range(3)]
        killed = processes[0]
        granted = lines_of(killed, "20")
        killed.kill()
        granted += lines_of(killed, "end")
        for process in processes[1:]:
            granted += lines_of(process, "end")
    calls, tokens = spent(kafka, topic, shared_budget(limit))
    requests = sum(line.isdigit() for line in granted)
    assert calls == limit
    assert tokens <= 100 * limit
    assert 20 <= requests <= limit
    assert limit - requests <= 2 * 8  # the killed one may have been granted some of which it could not tell


@pytest.mark.slow
async def test_what_is_before_a_checkpoint_is_deleted_and_a_new_process_joins(kafka: Kafka) -> None:
    topic = budget_topic(kafka, "deleted")
    async with opened(kafka.broker, topic) as budget:
        for _ in range(35):
            assert isinstance(await budget.reserve(LIVE, ONE, now_ns=NOON), Reservation)
        await until(lambda: first_offset(kafka, topic) > 0)
        async with opened(kafka.broker, topic) as late:
            assert late.trouble is None
            assert (await late.status(LIVE, now_ns=NOON)).left()[0].spent == 35
            assert isinstance(await late.reserve(LIVE, ONE, now_ns=NOON), Reservation)
            assert late.counts.divergent == 0
    assert spent(kafka, topic) == [36]


@pytest.mark.slow
async def test_a_broker_may_come_later_and_go_for_a_while(kafka_jars: Path, tmp_path: Path) -> None:
    ports, topic = free_ports(4), "later.budget"
    broker = f"127.0.0.1:{ports[0]}"
    async with opened(broker, topic, wait_s=0) as budget:
        await until(lambda: "refused" in str(budget.trouble))
        with pytest.raises(BudgetUnavailable, match="refused"):
            await budget.reserve(LIVE, ONE, now_ns=NOON)
        with running_kafka(kafka_jars, tmp_path, ports=ports) as kafka:
            await until(lambda: "does not exist" in str(budget.trouble))
            budget_topic(kafka, "later")
            await until(lambda: budget.trouble is None)
            made = await budget.reserve(LIVE, Spend(calls=5), now_ns=NOON)
            assert isinstance(made, Reservation)
        await until(lambda: budget.trouble is not None)
        await budget.settle(made, ONE)
        with running_kafka(kafka_jars, tmp_path, ports=ports):
            await until(lambda: budget.trouble is None)
            assert isinstance(await budget.reserve(LIVE, ONE, now_ns=NOON), Reservation)
            assert (await budget.status(LIVE, now_ns=NOON)).left()[0].spent == 2


@pytest.mark.slow
async def test_what_others_write_is_skipped_and_a_newer_release_stops_this_one(kafka: Kafka) -> None:
    topic = budget_topic(kafka, "foreign")
    kafka.write(topic, b"garbage", None, b"{}")
    async with opened(kafka.broker, topic) as budget:
        assert isinstance(await budget.reserve(LIVE, ONE, now_ns=NOON), Reservation)
        assert budget.counts.skipped == 3
        assert spent(kafka, topic) == [1]
        kafka.write(topic, b'{"ragtrace_budget":2}')
        await until(lambda: budget.trouble is not None)
        with pytest.raises(BudgetUnavailable, match="upgrade"):
            await budget.reserve(LIVE, ONE, now_ns=NOON)
    with pytest.raises(ReadError, match="upgrade"):
        spent(kafka, topic)


@pytest.mark.slow
async def test_a_log_that_lost_its_beginning_says_what_to_do(kafka: Kafka) -> None:
    topic = budget_topic(kafka, "lost")
    async with opened(kafka.broker, topic) as budget:
        for _ in range(3):
            await budget.reserve(LIVE, ONE, now_ns=NOON)
        budget.budget_log.delete_before(2)
        await until(lambda: first_offset(kafka, topic) == 2)
    async with opened(kafka.broker, topic) as late:
        with pytest.raises(BudgetUnavailable, match=r"retention\.ms"):
            await late.reserve(LIVE, ONE, now_ns=NOON)
    with pytest.raises(ReadError, match="no checkpoint"):
        spent(kafka, topic)


@pytest.mark.slow
async def test_wrong_credentials_are_told(kafka: Kafka) -> None:
    topic = budget_topic(kafka, "credentials")
    sasl = {
        "bootstrap.servers": kafka.sasl_broker,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USERNAME,
    }
    wrong = kafka_budget({**sasl, "sasl.password": "expired"}, topic, client="test")
    await wrong.open(wait_s=0)
    await until(lambda: "uthentication" in str(wrong.trouble))
    await wrong.aclose()
    async with open_kafka_budget({**sasl, "sasl.password": PASSWORD}, topic, client="test") as budget:
        assert isinstance(await budget.reserve(LIVE, ONE, now_ns=NOON), Reservation)


@pytest.mark.slow
async def test_a_program_that_cannot_wait_is_told_at_once(kafka: Kafka) -> None:
    (port,) = free_ports(1)
    with pytest.raises(ReadUnavailable):
        read_budget({"bootstrap.servers": f"127.0.0.1:{port}"}, "none", wait_s=1)
    with pytest.raises(ReadUnavailable, match="does not exist"):
        read_budget(settings(kafka), "none.budget")


@pytest.mark.slow
async def test_callers_at_once_get_their_own_answers(kafka: Kafka) -> None:
    topic = budget_topic(kafka, "at-once")
    few = Budget(name="live", limits={Period.DAY: Limit(calls=40)})
    async with opened(kafka.broker, topic) as budget:
        answers = await asyncio.gather(*(budget.reserve(few, ONE, now_ns=NOON) for _ in range(64)))
    granted = [answer for answer in answers if isinstance(answer, Reservation)]
    assert len(granted) == 40
    assert sum(isinstance(answer, ExceededLimit) for answer in answers) == 24
    assert spent(kafka, topic, few) == [40]


@pytest.mark.slow
async def test_what_a_closed_process_had_to_say_is_in_the_log(kafka: Kafka) -> None:
    topic = budget_topic(kafka, "closed")
    async with opened(kafka.broker, topic) as budget:
        made = await budget.reserve(LIVE, Spend(calls=5), now_ns=NOON)
        assert isinstance(made, Reservation)
        settling = asyncio.create_task(budget.settle(made, ONE))
        await asyncio.sleep(0)
    await settling
    assert spent(kafka, topic) == [1]
