"""What concerns several shards: one session and one alert, though processes die and mail comes twice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ragtrace import semconv
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.deliver.mail import decode_mail
from ragtrace_collector.receive.kafka_mail import MAIL_HEADER
from ragtrace_collector.store.shard import shard_of, shard_of_session
from tests.acceptance.test_cluster import PARTITIONS, Cluster, await_owned, cluster_over, send
from tests.backends.kafka_server import Kafka
from tests.backends.process import eventually
from tests.cluster.members import Member
from tests.integration.collector.webhook import Webhook, webhook
from tests.patience import PATIENCE_S
from tests.rag_spans import START_NS, rag_trace, trace_id_of

SESSION = "chat-1"
BAD = "Penguins founded the company on Mars."
TURNS, ANSWERS = 12, 60
MINUTE_NS = 60 * 10**9


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as served:
        yield served


def send_turns(member: Member, *numbers: int) -> None:
    """Send turns of one session, each a trace, until they are acknowledged."""
    for number in numbers:
        spans = rag_trace(number, start_ns=START_NS + number * MINUTE_NS)
        told = [replace(span, attributes={**span.attributes, semconv.SESSION_ID: SESSION}) for span in spans]
        eventually(lambda told=told: member.send(encode(told)), what=f"turn {number} to be acknowledged")


def mail_in(kafka: Kafka, topic: str) -> Sequence[Message]:
    """Return the messages of a topic that hold mail, as far as they are written."""
    consumer = Consumer({"bootstrap.servers": kafka.broker, "group.id": "mail", "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, timeout=PATIENCE_S)[1] for place in places]
        consumer.assign(places)
        found: list[Message] = []
        while len(found) < sum(ends):
            found += consumer.consume(sum(ends) - len(found), PATIENCE_S)
    finally:
        consumer.close()
    return [message for message in found if MAIL_HEADER in dict(message.headers() or [])]


def send_mail_again(kafka: Kafka, topic: str) -> int:
    """Write all mail once more, as a sender does that was killed before it knew; return how much."""
    producer = Producer({"bootstrap.servers": kafka.broker, "acks": "all"})
    mail = mail_in(kafka, topic)
    for message in mail:
        partition = message.partition()
        assert partition is not None
        producer.produce(
            topic,
            value=message.value(),
            key=message.key(),
            headers=message.headers() or [],
            partition=partition,
        )
    assert producer.flush(PATIENCE_S) == 0
    return len(mail)


def sessions_in(cluster: Cluster) -> Sequence[Span]:
    """Return the spans of sessions that no other replaces."""
    spans = [span for span in cluster.spans() if semconv.SESSION_LABEL in span.attributes]
    replaced = {span.attributes.get(semconv.SESSION_SUPERSEDES) for span in spans}
    return list({span.span_id: span for span in spans if span.span_id not in replaced}.values())


def await_session(cluster: Cluster, turns: int) -> Span:
    """Wait until there is one session with so many turns."""

    def found() -> Span | None:
        valid = sessions_in(cluster)
        whole = [span for span in valid if span.attributes[semconv.SESSION_TURNS] == turns]
        return whole[0] if len(valid) == len(whole) == 1 else None

    return eventually(found, what=f"one session of {turns} turns")


def test_turns_of_traces_of_several_shards_are_one_session(kafka: Kafka, tmp_path: Path) -> None:
    owner = shard_of_session(SESSION, tenant="", shards=PARTITIONS)
    assert {shard_of(trace_id_of(number), PARTITIONS) for number in range(TURNS)} > {owner}
    sessions = {"enabled": True, "idle": "3s", "contradictions": False}
    with cluster_over(kafka, tmp_path, "session", sessions=sessions) as cluster:
        first, second = (cluster.started(f"all-{number}") for number in range(2))
        await_owned(first, second)
        send_turns(first, *range(TURNS // 2))
        second.kill()
        send_turns(first, *range(TURNS // 2, TURNS))
        second.start()
        await_session(cluster, TURNS)
        mail = mail_in(kafka, "session.spans")
        assert {message.partition() for message in mail} == {owner}
        assert send_mail_again(kafka, "session.spans") > 0
        send_turns(second, TURNS)
        session = await_session(cluster, TURNS + 1)
        assert session.attributes[semconv.SESSION_FAITHFUL_SHARE] == 1.0
        assert session.trace_id == trace_id_of(TURNS)
        ledgers = [member.page("/ledger") for member in (first, second)]
        assert [ledger["dead_letters"] for ledger in ledgers] == [{}, {}]
        sent = len(mail_of(mail_in(kafka, "session.spans")))
        eventually(
            lambda: sum(mail_delivered_by(member) for member in (first, second)) == sent,
            what="all mail to be counted as delivered",
        )


def mail_delivered_by(member: Member) -> int:
    """Return how much mail the shards of a process have delivered, by its metrics."""
    assert member.running is not None
    text = httpx.get(f"http://127.0.0.1:{member.running.pages_port}/metrics", timeout=PATIENCE_S).text
    about = ("ragtrace_outbox{", 'sink="other shards"', 'state="delivered"')
    found = [line for line in text.splitlines() if all(part in line for part in about)]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def mail_of(messages: Sequence[Message]) -> set[str]:
    """Return the ids of the mail in messages."""
    return {mail.id for message in messages for mail, _ in decode_mail(bytes(message.value() or b""))}


def counted(members: Sequence[Member]) -> int:
    """Return how many answers the watch over the objective has counted."""
    found = [0]
    for file in (file for member in members for file in member.folder.rglob("shard-0.db")):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT state FROM watch_state").fetchall()
        found += [json.loads(state)["judged"] for (state,) in rows]
    return max(found)


def test_an_objective_counts_the_answers_of_all_shards_once(
    kafka: Kafka, tmp_path: Path, hook: Webhook
) -> None:
    sections = {"slo": [{"name": "faithful"}], "alerts": {"to": [{"webhook": hook.url}]}}
    with cluster_over(kafka, tmp_path, "objective", **sections) as cluster:
        members = [cluster.started(f"all-{number}") for number in range(2)]
        await_owned(*members)
        send(members[0], *range(ANSWERS // 2), answer=BAD)
        members[1].kill()
        send(members[0], *range(ANSWERS // 2, ANSWERS), answer=BAD)
        members[1].start()
        eventually(lambda: counted(members) == ANSWERS, what="all answers to be counted")
        assert send_mail_again(kafka, "objective.spans") > 0
        last = next(
            number for number in range(ANSWERS, 2 * ANSWERS) if shard_of(trace_id_of(number), PARTITIONS)
        )
        send(members[1], last, answer=BAD)
        eventually(lambda: counted(members) > ANSWERS, what="one more to be counted")
        eventually(lambda: hook.notices, what="a notice")
        assert counted(members) == ANSWERS + 1
        (firing,) = {notice["id"]: notice for notice in hook.notices}.values()
        assert (firing["status"], firing["slo"]["name"]) == ("firing", "faithful")
        assert 0 < firing["failing_answers"] == firing["judged_answers"] <= ANSWERS
