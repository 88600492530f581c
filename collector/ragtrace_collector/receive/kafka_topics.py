"""The topics that collectors need, as they need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from ragtrace_collector.config.kafka import KafkaConfig, KafkaStoreConfig
from ragtrace_collector.kafka.topics import WantedTopic

DEAD_LETTERS: Final = "dead letters"
NEW_SHARDS: Final = 12
"""The shards of a new cluster: more cost little, and their number is for good."""
_AROUND_BYTES: Final = 1 << 20
"""What a message has beside the spans of a request: its key, its headers, its batch."""


def largest_message(max_message_bytes: int) -> int:
    """Return how large a message must be allowed to be for requests of a size."""
    return max_message_bytes + _AROUND_BYTES


def received_topics(config: KafkaConfig, *, partitions: int, retention: timedelta) -> Sequence[WantedTopic]:
    """Return the topics that spans are read from, then those of their dead letters.

    Args:
        config: The section ``receive.kafka``.
        partitions: At least so many for each topic of spans; dead letters have one partition.
        retention: At least so long messages stay.
    """
    kept = {"retention.ms": _milliseconds(retention)}
    dead = (config.dead_letter_topic(topic) for topic in config.topics)
    return [
        *(
            WantedTopic(name=name, purpose="spans", partitions=partitions, config=kept)
            for name in dict.fromkeys(config.topics)
        ),
        *(
            WantedTopic(name=name, purpose=DEAD_LETTERS, partitions=1, config=kept)
            for name in dict.fromkeys(topic for topic in dead if topic)
        ),
    ]


def cluster_topics(
    config: KafkaStoreConfig,
    *,
    partitions: int | None,
    retention: timedelta,
    max_message_bytes: int | None = None,
) -> Sequence[WantedTopic]:
    """Return the topics of collectors that share a store.

    Args:
        config: The section ``store.kafka``.
        partitions: At least so many shards; ``None`` for as many as there are.
        retention: At least so long spans stay, and so long the state keeps what says that a row is gone: a
            copy of a shard may be as old.
        max_message_bytes: At least so large messages may be; ``None`` if the brokers decide.
    """
    large = {} if max_message_bytes is None else {"max.message.bytes": str(max_message_bytes)}
    spans, *dead = received_topics(config.receiver(), partitions=partitions or 1, retention=retention)
    return [
        replace(spans, partitions=partitions, if_new=NEW_SHARDS, config={**spans.config, **large}),
        WantedTopic(
            name=config.state,
            purpose="state",
            same_as=config.spans,
            cleanup="compact",
            config={"delete.retention.ms": _milliseconds(retention), **large},
        ),
        WantedTopic(
            name=config.budget,
            purpose="budget",
            partitions=1,
            is_exact=True,
            config={"retention.ms": "-1", "retention.bytes": "-1"},
        ),
        *(replace(each, config={**each.config, **large}) for each in dead),
    ]


def _milliseconds(duration: timedelta) -> str:
    return str(int(duration.total_seconds() * 1000))
