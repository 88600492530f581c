"""What is written into Kafka: copies of messages that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ragtrace_collector.config.kafka import KafkaConfig
from ragtrace_collector.kafka import text_of
from ragtrace_collector.receive.kafka_client import TopicMessage

_DELIVERY_TIMEOUT_S: Final = 10.0
_LARGEST_BYTES: Final = 1_000_000_000
"""What librdkafka takes at most: the brokers say how large a message may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A message to be copied into a dead-letter topic."""

    message: TopicMessage
    topic: str
    reason: str


class DeadLetterProducer:
    """Copies messages into dead-letter topics, with where they come from in the headers."""

    def __init__(self, config: KafkaConfig) -> None:
        self._producer = Producer(
            {
                **config.client_settings(),
                "acks": "all",
                "compression.type": "zstd",
                "message.max.bytes": _LARGEST_BYTES,
                "message.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
            }
        )

    def send(self, copies: Sequence[Copy]) -> Sequence[str | None]:
        """Copy messages, and return for each why that failed; ``None`` if the brokers have it."""
        results: list[str | None] = ["it took too long"] * len(copies)
        for position, copy in enumerate(copies):
            try:
                self._producer.produce(
                    copy.topic,
                    value=copy.message.value,
                    key=copy.message.key,
                    headers=[*copy.message.headers, *_origin(copy)],
                    on_delivery=_noting(results, position),
                )
            except (KafkaException, BufferError) as exc:
                results[position] = text_of(exc)
        self._producer.flush(2 * _DELIVERY_TIMEOUT_S)
        return results


def _noting(results: list[str | None], position: int) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, _: Message) -> None:
        results[position] = text_of(error) if error is not None else None

    return note


def _origin(copy: Copy) -> Sequence[tuple[str, bytes]]:
    message = copy.message
    origin = {
        "ragtrace.reason": copy.reason,
        "ragtrace.topic": message.topic,
        "ragtrace.partition": message.partition,
        "ragtrace.offset": message.offset,
    }
    return [(name, str(value).encode()) for name, value in origin.items()]
