"""Topics of a real Kafka: what is wrong with them is told, and made right if that takes nothing away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.config.kafka import KafkaConfig
from ragtrace_collector.kafka.topics import TopicAdmin, TopicState, WantedTopic
from ragtrace_collector.receive.kafka_topics import received_topics
from tests.backends.kafka_server import Kafka
from tests.backends.process import eventually, free_ports
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

WEEK = timedelta(days=7)


def wanted_of(name: str, *, partitions: int = 4) -> Sequence[WantedTopic]:
    """Return the topic of spans, and that of its dead letters."""
    config = KafkaConfig(brokers=("127.0.0.1:1",), topics=(name,))
    return received_topics(config, partitions=partitions, retention=WEEK)


def admin_of(kafka: Kafka, wanted: Sequence[WantedTopic]) -> TopicAdmin:
    return TopicAdmin({"bootstrap.servers": kafka.broker}, wanted)


def create(kafka: Kafka, topic: str, *, partitions: int = 1, **config: str) -> None:
    """Create a topic, and return when the broker tells of it."""
    kafka.create(topic, partitions=partitions, **config)
    admin = admin_of(kafka, [WantedTopic(name=topic, purpose="test", partitions=1, retention=WEEK)])
    eventually(lambda: admin.states()[0].exists, what=topic)


def faults_of(states: Sequence[TopicState]) -> list[list[str]]:
    return [list(state.faults) for state in states]


def test_topics_that_do_not_exist_are_told_and_created(kafka: Kafka) -> None:
    admin = admin_of(kafka, wanted_of("created"))
    assert faults_of(admin.states()) == [["it does not exist"]] * 2
    assert faults_of(admin.states()) == [["it does not exist"]] * 2  # that they were asked for made none
    states = admin.apply()
    assert faults_of(states) == [[], []]
    assert [state.partitions for state in states] == [4, 1]
    made = kafka.config_of("created")
    assert (made["cleanup.policy"], made["retention.ms"]) == ("delete", "604800000")


def test_wrong_settings_are_told_and_set(kafka: Kafka) -> None:
    create(kafka, "wrong", partitions=4, **{"cleanup.policy": "compact", "retention.ms": "3600000"})
    create(kafka, "wrong.dead-letter", **{"retention.ms": "1000"})
    admin = admin_of(kafka, wanted_of("wrong"))
    spans, dead = faults_of(admin.states())
    assert spans == [
        "`cleanup.policy` is compact: of messages with one key, only the last would stay",
        "`retention.ms` is 3600000: less than 604800000",
    ]
    assert dead == ["`retention.ms` is 1000: less than 604800000"]
    assert faults_of(admin.apply()) == [[], []]


def test_a_topic_that_compacts_and_deletes_is_not_one_that_deletes(kafka: Kafka) -> None:
    create(kafka, "both", **{"cleanup.policy": "compact,delete"})
    state, _ = admin_of(kafka, wanted_of("both", partitions=1)).states()
    assert list(state.wrong_settings) == ["cleanup.policy"]


def test_a_number_of_partitions_is_told_and_left_as_it_is(kafka: Kafka) -> None:
    create(kafka, "few", partitions=2)
    admin = admin_of(kafka, wanted_of("few"))
    for states in (admin.states(), admin.apply()):
        (fault,) = states[0].faults
        assert fault.startswith("it has fewer than 4 partitions: add them while nothing is written")
        assert states[0].partitions == 2


def test_more_than_is_wanted_is_fine(kafka: Kafka) -> None:
    create(kafka, "more", partitions=6, **{"retention.ms": "-1"})
    create(kafka, "more.dead-letter", **{"retention.ms": "864000000"})
    assert faults_of(admin_of(kafka, wanted_of("more")).states()) == [[], []]


def test_partitions_that_are_added_are_seen(kafka: Kafka) -> None:
    admin = admin_of(kafka, wanted_of("added", partitions=2))
    admin.apply()
    client = AdminClient({"bootstrap.servers": kafka.broker})
    (grown,) = client.create_partitions([NewPartitions("added", 3)]).values()
    grown.result(PATIENCE_S)
    eventually(lambda: admin.states()[0].partitions == 3, what="the third partition")


def test_brokers_that_are_away_are_not_taken_for_missing_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragtrace_collector.kafka.topics._TIMEOUT_S", 1.0)
    (port,) = free_ports(1)
    admin = TopicAdmin({"bootstrap.servers": f"127.0.0.1:{port}"}, wanted_of("away"))
    with pytest.raises(ReadUnavailable, match="do not answer"):
        admin.states()
