"""What is written into Kafka: the spans of a cluster, and copies of messages that cannot be used."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ragtrace_collector.config.kafka import KafkaConfig, KafkaStoreConfig
from ragtrace_collector.kafka.errors import text_of
from ragtrace_collector.receive.kafka_client import TopicMessage
from ragtrace_collector.store.shard import shard_of

_DELIVERY_TIMEOUT_S: Final = 10.0
_UNSENT_KILOBYTES: Final = 64 << 10
_LINGER_MS: Final = 5
_SERVE_S: Final = 0.1
_LARGEST_BYTES: Final = 1_000_000_000
"""What librdkafka takes at most: the brokers say how large a message may be."""


class SpanMessage(NamedTuple):
    """The spans of one trace as OTLP, or mail between shards."""

    key: str
    """The trace id, which says the partition."""
    payload: bytes
    headers: list[tuple[str, bytes]]
    partition: int | None = None
    """Whatever the key says."""


class SpanProducer:
    """Writes the spans of traces into the partitions of their shards. ``write`` does not block."""

    def __init__(self, config: KafkaStoreConfig, *, shards: int) -> None:
        self._topic = config.spans
        self._shards = shards
        self._producer = Producer(
            {
                **config.client_settings(),
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": _LINGER_MS,
                "message.max.bytes": _LARGEST_BYTES,
                "delivery.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
                "queue.buffering.max.kbytes": _UNSENT_KILOBYTES,
            }
        )
        self._is_open = True
        self._thread = threading.Thread(target=self._serve, name="ragtrace-produce", daemon=True)
        self._thread.start()

    def write(self, messages: Sequence[SpanMessage], written: asyncio.Future[str | None]) -> None:
        """Write messages; ``written`` gets why that failed, or ``None`` when the brokers have all of them."""
        deliveries = _Deliveries(written, left=len(messages))
        for message in messages:
            try:
                self._producer.produce(
                    self._topic,
                    value=message.payload,
                    key=message.key.encode(),
                    partition=self._partition_of(message),
                    headers=[*message.headers],
                    on_delivery=deliveries.note,
                )
            except (KafkaException, BufferError) as exc:
                deliveries.end(text_of(exc))

    def _partition_of(self, message: SpanMessage) -> int:
        return shard_of(message.key, self._shards) if message.partition is None else message.partition

    def close(self) -> None:
        """Wait for what is under way. Blocks."""
        self._producer.flush(_DELIVERY_TIMEOUT_S)
        self._is_open = False
        self._thread.join()

    def _serve(self) -> None:
        while self._is_open:
            self._producer.poll(_SERVE_S)


class _Deliveries:
    """The messages of one request that are under way. Two threads end them."""

    def __init__(self, written: asyncio.Future[str | None], *, left: int) -> None:
        self._written = written
        self._left = left
        self._trouble: str | None = None
        self._lock = threading.Lock()

    def note(self, error: KafkaError | None, _: Message) -> None:
        """End one, as the client says."""
        self.end(text_of(error) if error is not None else None)

    def end(self, trouble: str | None) -> None:
        """End one; after the last, the request is answered."""
        with self._lock:
            self._left -= 1
            self._trouble = self._trouble or trouble
            is_last = not self._left
        if is_last:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._written.get_loop().call_soon_threadsafe(_resolve, self._written, self._trouble)


def _resolve(written: asyncio.Future[str | None], trouble: str | None) -> None:
    if not written.done():
        written.set_result(trouble)


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
