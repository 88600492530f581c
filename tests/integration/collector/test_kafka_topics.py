"""Topics of a real Kafka: what is wrong with them is told, and made right if that takes nothing away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.kafka.topics import TopicAdmin, TopicState, WantedTopic
from ragtrace_collector.receive.kafka_topics import cluster_topics
from tests.backends.kafka_server import Kafka
from tests.backends.process import eventually, free_ports
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

GOES = "what is old would be deleted, and it must stay until a later message with its key"
FOREVER = {"retention.ms": "-1"}
OF_SPANS = {"max.message.bytes": str(4 << 20)}
OF_STATE = {"cleanup.policy": "compact", "delete.retention.ms": "604800000", **OF_SPANS}


def wanted_of_cluster(prefix: str, *, partitions: int = 4) -> Sequence[WantedTopic]:
    """Return the topics of collectors that share a store, without those of dead letters."""
    config = KafkaStoreConfig(brokers=("127.0.0.1:1",), prefix=prefix)
    *wanted, _ = cluster_topics(
        config, partitions=partitions, retention=timedelta(days=7), max_message_bytes=4 << 20
    )
    return wanted


def admin_of(kafka: Kafka, wanted: Sequence[WantedTopic]) -> TopicAdmin:
    return TopicAdmin({"bootstrap.servers": kafka.broker}, wanted)


def create(kafka: Kafka, topic: str, *, partitions: int = 1, **config: str) -> None:
    """Create a topic, and return when the broker tells of it."""
    kafka.create(topic, partitions=partitions, **config)
    admin = admin_of(kafka, [WantedTopic(name=topic, purpose="test")])
    eventually(lambda: admin.states()[0].exists, what=topic)


def faults_of(states: Sequence[TopicState]) -> list[list[str]]:
    return [list(state.faults) for state in states]


def test_topics_that_do_not_exist_are_told_and_created(kafka: Kafka) -> None:
    admin = admin_of(kafka, wanted_of_cluster("created"))
    assert faults_of(admin.states()) == [["it does not exist"]] * 3
    assert faults_of(admin.states()) == [["it does not exist"]] * 3  # that they were asked for made none
    states = admin.apply()
    assert faults_of(states) == [[], [], []]
    assert [state.partitions for state in states] == [4, 4, 1]
    state = kafka.config_of("created.state")
    assert (state["cleanup.policy"], state["delete.retention.ms"]) == ("compact", "604800000")
    assert kafka.config_of("created.budget")["retention.ms"] == "-1"


def test_a_topic_is_created_with_as_many_partitions_as_the_one_that_is_there(kafka: Kafka) -> None:
    create(kafka, "some.spans", partitions=6, **{"max.message.bytes": str(8 << 20)})
    states = admin_of(kafka, wanted_of_cluster("some")).apply()
    assert [state.partitions for state in states] == [6, 6, 1]
    assert kafka.config_of("some.spans")["max.message.bytes"] == str(8 << 20)


def test_wrong_settings_are_told_and_set(kafka: Kafka) -> None:
    create(kafka, "wrong.spans", partitions=4, **{"cleanup.policy": "compact", "retention.ms": "3600000"})
    create(kafka, "wrong.state", partitions=4, **{"delete.retention.ms": "1000", **OF_SPANS})
    create(kafka, "wrong.budget", **{"retention.ms": "3600000"})
    admin = admin_of(kafka, wanted_of_cluster("wrong"))
    spans, state, budget = faults_of(admin.states())
    assert spans == [
        "`cleanup.policy` is compact: of messages with one key, only the last would stay",
        "`retention.ms` is 3600000: less than 604800000",
        "`max.message.bytes` is 1048588: less than 4194304",
    ]
    assert state == [
        "`cleanup.policy` is delete: " + GOES,
        "`delete.retention.ms` is 1000: less than 604800000",
    ]
    assert budget == [
        "`retention.ms` is 3600000: nothing may be deleted by itself, so it must be -1",
    ]
    assert faults_of(admin.apply()) == [[], [], []]


def test_a_topic_that_compacts_and_deletes_is_not_one_that_compacts(kafka: Kafka) -> None:
    create(kafka, "both", **{"cleanup.policy": "compact,delete"})
    for cleanup in ("compact", "delete"):
        wanted = WantedTopic(name="both", purpose="state", cleanup=cleanup)
        (state,) = admin_of(kafka, [wanted]).states()
        assert list(state.wrong_settings) == ["cleanup.policy"]


def test_numbers_of_partitions_are_told_and_left_as_they_are(kafka: Kafka) -> None:
    create(kafka, "few.spans", partitions=2, **OF_SPANS)
    create(kafka, "few.state", partitions=3, **OF_STATE)
    create(kafka, "few.budget", partitions=2, **FOREVER)
    admin = admin_of(kafka, wanted_of_cluster("few"))
    for states in (admin.states(), admin.apply()):
        spans, state, budget = ["; ".join(faults) for faults in faults_of(states)]
        assert spans.startswith("it has fewer than 4 partitions: add them while nothing is written")
        assert state.startswith("it has 3 partitions and few.spans has 2: add partitions")
        assert budget.startswith("it has 2 partitions and must have 1: partitions cannot be removed")
        assert [state.partitions for state in states] == [2, 3, 2]


def test_more_than_is_wanted_is_fine(kafka: Kafka) -> None:
    create(kafka, "more.spans", partitions=6, **{"retention.ms": "-1", "max.message.bytes": str(1 << 24)})
    create(kafka, "more.state", partitions=6, **OF_STATE)
    create(kafka, "more.budget", **FOREVER)
    assert faults_of(admin_of(kafka, wanted_of_cluster("more")).states()) == [[], [], []]


def test_partitions_that_are_added_are_seen(kafka: Kafka) -> None:
    admin = admin_of(kafka, wanted_of_cluster("added", partitions=2))
    admin.apply()
    client = AdminClient({"bootstrap.servers": kafka.broker})
    (grown,) = client.create_partitions([NewPartitions("added.spans", 3)]).values()
    grown.result(PATIENCE_S)
    states = eventually(lambda: has_grown(admin.states()), what="the third partition")
    assert [bool(state.faults) for state in states] == [False, True, False]


def has_grown(states: Sequence[TopicState]) -> Sequence[TopicState] | None:
    return states if states[0].partitions == 3 else None


def test_dead_letters_of_a_cluster_have_a_topic() -> None:
    config = KafkaStoreConfig(brokers=("127.0.0.1:1",), prefix="p")
    wanted = cluster_topics(config, partitions=None, retention=timedelta(days=7))
    assert [each.name for each in wanted] == ["p.spans", "p.state", "p.budget", "p.spans.dead-letter"]


def test_brokers_that_are_away_are_not_taken_for_missing_topics() -> None:
    (port,) = free_ports(1)
    admin = TopicAdmin({"bootstrap.servers": f"127.0.0.1:{port}"}, wanted_of_cluster("away"), timeout_s=1)
    with pytest.raises(ReadUnavailable, match="do not answer"):
        admin.states()
