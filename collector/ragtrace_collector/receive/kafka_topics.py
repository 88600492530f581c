"""The topics that a collector reads from, as it needs them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ragtrace_collector.config.kafka import KafkaConfig
from ragtrace_collector.kafka.topics import WantedTopic


def received_topics(config: KafkaConfig, *, partitions: int, retention: timedelta) -> Sequence[WantedTopic]:
    """Return the topics that spans are read from, then those of their dead letters.

    Args:
        config: The section ``receive.kafka``.
        partitions: At least so many for each topic of spans; dead letters have one partition.
        retention: At least so long messages stay.
    """
    dead = (config.dead_letter_topic(topic) for topic in config.topics)
    return [
        *(
            WantedTopic(name=name, purpose="spans", partitions=partitions, retention=retention)
            for name in dict.fromkeys(config.topics)
        ),
        *(
            WantedTopic(name=name, purpose="dead letters", partitions=1, retention=retention)
            for name in dict.fromkeys(topic for topic in dead if topic)
        ),
    ]
