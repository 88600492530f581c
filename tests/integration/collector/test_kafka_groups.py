"""Who is in a consumer group of a real Kafka, whatever happens to its broker meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.kafka import groups
from ragtrace_collector.kafka.groups import GroupAdmin, GroupMember
from tests.backends.process import eventually
from tests.cluster.scene import Broker


@contextmanager
def member_of(broker: str, group: str, *topics: str) -> Iterator[Consumer]:
    """Be a member of a group that reads these topics; it has to be polled."""
    consumer = Consumer(
        {"bootstrap.servers": broker, "group.id": group, "session.timeout.ms": 6000, "log_level": 0}
    )
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.mark.slow
def test_members_are_known_again_as_soon_as_the_broker_is_there_again(
    kafka_jars: Path, tmp_path: Path
) -> None:
    broker = Broker(kafka_jars, tmp_path)
    kafka = broker.start()
    try:
        for topic in ("spans", "others"):
            kafka.create(topic, partitions=2)
        admin = GroupAdmin({"bootstrap.servers": kafka.broker}, "group")
        assert admin.members() == []
        with (
            member_of(kafka.broker, "group", "spans") as first,
            member_of(kafka.broker, "group", "spans", "others") as second,
        ):

            def topics() -> list[set[str]]:
                for consumer in (first, second):
                    consumer.poll(0.1)
                return sorted((set(member.topics) for member in admin.members()), key=len)

            eventually(lambda: topics() == [{"spans"}, {"spans", "others"}], what="both members")
            broker.stop()
            with pytest.raises(ReadUnavailable, match="the brokers do not answer: "):
                admin.members()
            broker.start()
            admin.members()
            eventually(lambda: topics() == [{"spans"}, {"spans", "others"}], what="both members again")
    finally:
        broker.stop()


class ListsGroups(SimpleNamespace):
    """Answers as the brokers do, without them."""

    def list_groups(self, group: str, timeout_s: float) -> object:
        return [SimpleNamespace(error=self.error, members=self.members)]

    def reason(self, exc: Exception) -> str:
        return f"refuse: {exc.args[0].str()}"


def answering(
    monkeypatch: pytest.MonkeyPatch, *, metadata: bytes = b"", error: KafkaError | None = None
) -> GroupAdmin:
    members = [SimpleNamespace(id="one", metadata=metadata)]
    monkeypatch.setattr(groups, "Admin", lambda settings: ListsGroups(error=error, members=members))
    return GroupAdmin({}, "group")


def subscription(*topics: str, version: int = 3) -> bytes:
    """Return what Kafka's clients tell a group, with what newer versions have behind the topics."""
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">ii", -1, 0)


@pytest.mark.parametrize("topics", [(), ("spans",), ("spans", "späne")])
def test_the_topics_of_a_member_are_those_that_it_told(
    topics: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = answering(monkeypatch, metadata=subscription(*topics))
    assert admin.members() == [GroupMember(id="one", topics=frozenset(topics))]


@given(st.binary(max_size=64) | st.integers(0, 30).map(lambda size: subscription("spans", "späne")[:size]))
def test_what_is_no_subscription_names_nothing_that_is_not_there(metadata: bytes) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        (member,) = answering(monkeypatch, metadata=metadata).members()
    assert all(topic.encode() in metadata for topic in member.topics)


def test_a_group_that_may_not_be_seen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not this group")
    with pytest.raises(ReadUnavailable, match="the brokers refuse: not this group"):
        answering(monkeypatch, error=refused).members()
