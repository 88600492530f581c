"""What the brokers of a cluster say of its topics. Everything here blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.kafka.admin import Admin

_ANSWER_S: Final = 5.0
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has none
_ABSENT: Final = KafkaError.UNKNOWN_TOPIC_OR_PART


class ClusterTopics:
    """Asks for the topics of a cluster; it creates none. One thread calls it."""

    def __init__(self, config: KafkaStoreConfig) -> None:
        """Connect when it is used."""
        self._config = config
        self._admin = Admin(config.client_settings())

    def partitions(self, *topics: str) -> Sequence[int]:
        """Return how many partitions each topic has.

        Raises:
            ReadUnavailable: the brokers do not answer, or a topic is missing.
        """
        asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ANSWER_S)
        found: dict[str, int] = {}
        for topic, described in asked.items():
            try:
                found[topic] = len(described.result().partitions)
            except KafkaException as exc:
                if exc.args[0].code() != _ABSENT:
                    raise self._unavailable(exc) from exc
        if missing := [repr(topic) for topic in topics if topic not in found]:
            raise ReadUnavailable(
                f"there is no topic {', '.join(missing)}: name the cluster's prefix in `store.kafka`, or "
                "make its topics with `ragtrace kafka topics --apply`"
            )
        return [found[topic] for topic in topics]

    def ends(self, topic: str, partitions: int) -> Mapping[int, int]:
        """Return up to where each partition holds what was committed.

        Raises:
            ReadUnavailable: the brokers do not answer.
        """
        asked = self._admin.list_offsets(
            {TopicPartition(topic, number): _LATEST for number in range(partitions)},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_ANSWER_S,
        )
        try:
            return {place.partition: found.result().offset for place, found in asked.items()}
        except KafkaException as exc:
            raise self._unavailable(exc) from exc

    def _unavailable(self, exc: KafkaException) -> ReadUnavailable:
        brokers = ", ".join(self._config.brokers)
        return ReadUnavailable(f"the brokers {brokers} of `store.kafka` {self._admin.reason(exc)}")
