"""A log of rows in a partition of a compacted topic of Apache Kafka.

Its owner writes in transactions, so a reader sees all rows of a commit or none, and a new owner with the same
transactional id fences it. Every method blocks; one thread calls them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ragtrace_collector.kafka.errors import text_of
from ragtrace_collector.kafka.messages import bytes_of
from ragtrace_collector.store.changelog.log import (
    LogDamaged,
    LoggedRow,
    LogLost,
    LogState,
    LogUnavailable,
    RowBatch,
)
from ragtrace_collector.store.changelog.messages import decode, encode_key, encode_values

_ANSWER_S: Final = 10.0
"""How long to wait for an answer; less than the time after which a sender gives up."""
_FENCE_S: Final = 30.0
"""How long to wait until what the former owner began is ended."""
_END_S: Final = 2.0
"""How long a caller waits besides until a transaction that failed is ended; the next one goes on with it."""
_COMMIT_S: Final = 30.0
_TRANSACTION_MS: Final = 120_000
"""The longest transaction: all rows of a shard, after an upgrade."""
_AT_ONCE: Final = 1_000
_BATCH_ROWS: Final = 20_000
_BATCH_BYTES: Final = 64 << 20
_LARGEST_BYTES: Final = 1_000_000_000
"""What librdkafka takes at most: the topic says how large a message may be."""
_OVERHEAD_BYTES: Final = 64 << 10
"""What a message has beside the columns that may be large."""
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 -- named so by librdkafka
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001


class KafkaLogReader:
    """Reads a partition."""

    def __init__(self, settings: Mapping[str, Any], *, topic: str, partition: int) -> None:
        """Connect when it is used. ``settings`` are librdkafka's, of the connection."""
        self._settings = {"log_level": 0, **settings}
        self._place = (topic, partition)
        self._admin = AdminClient(dict(self._settings))

    @property
    def name(self) -> str:
        """What to call the log in messages."""
        topic, partition = self._place
        return f"the topic {topic!r}, partition {partition}"

    def look(self) -> LogState:
        """Return how the log is now. This is ``RowReader.look``."""
        topic, _ = self._place
        consumer = self._consumer()
        try:
            cluster = self._admin.list_topics(topic, timeout=_ANSWER_S).cluster_id
            (described,) = self._admin.describe_topics(TopicCollection([topic])).values()
            identity = described.result(_ANSWER_S).topic_id
            start, end = consumer.get_watermark_offsets(TopicPartition(*self._place), timeout=_ANSWER_S)
            kept_ms = float(self._setting("delete.retention.ms"))
        except (KafkaException, TimeoutError) as exc:
            raise self._unavailable(exc) from exc
        finally:
            consumer.close()
        number = self._place[1]
        return LogState(
            id=f"{cluster}/{identity}/{number}", start=start, end=end, deletions_kept_s=kept_ms / 1000
        )

    def read(self, after: int) -> Iterator[RowBatch]:
        """Yield what was committed from a position on. This is ``RowReader.read``."""
        consumer = self._consumer()
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(*self._place), timeout=_ANSWER_S)
            consumer.assign([TopicPartition(*self._place, after)])
            yield from self._batches(consumer, end)
        except (KafkaException, RuntimeError) as exc:
            raise self._unavailable(exc) from exc
        finally:
            consumer.close()

    def close(self) -> None:
        """Do nothing: the connections of a reader end with it."""

    def _batches(self, consumer: Consumer, end: int) -> Iterator[RowBatch]:
        rows: list[LoggedRow] = []
        places: list[int] = []
        size = 0
        position: int | None = None
        while position is None or position < end:
            for message in self._messages(consumer):
                offset = message.offset()
                assert offset is not None
                if message.error() is not None:  # the end: of what was committed, not of the last row
                    position = offset
                    continue
                rows.append(self._row(message, offset))
                places.append(offset)
                size += len(message)
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield RowBatch(rows, places, places[-1] + 1)
                rows, places, size = [], [], 0
        yield RowBatch(rows, places, position)

    def _messages(self, consumer: Consumer) -> list[Message]:
        first = consumer.poll(_ANSWER_S)
        if first is None:
            raise LogUnavailable(f"{self.name} does not answer")
        found = [first, *consumer.consume(_AT_ONCE, 0)]
        for message in found:
            error = message.error()
            if error is not None and error.code() != _END:
                raise LogUnavailable(f"{self.name} cannot be read: {text_of(error)}")
        return found

    def _row(self, message: Message, offset: int) -> LoggedRow:
        try:
            return decode(bytes_of(message.key()), bytes_of(message.value()))
        except ValueError as exc:
            raise LogDamaged(
                f"{self.name}: the message at offset {offset} is no row of a store: {exc}: another program "
                "wrote it: name another topic, or delete it and make it again"
            ) from exc

    def _consumer(self) -> Consumer:
        topic, partition = self._place
        return Consumer(
            {
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": _BATCH_BYTES,
                "fetch.max.bytes": 2 * _BATCH_BYTES,
                "fetch.wait.max.ms": 50,  # how long the brokers take to say that no more is there
                "queued.max.messages.kbytes": _BATCH_BYTES >> 10,
                **self._settings,
                "group.id": f"{topic}-{partition}",  # none is joined, but librdkafka asks for a name
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )

    def _setting(self, name: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, self._place[0])
        (found,) = self._admin.describe_configs([resource]).values()
        return str(found.result(_ANSWER_S)[name].value)

    def _unavailable(self, exc: Exception) -> LogUnavailable:
        return LogUnavailable(f"{self.name} does not answer: {text_of(exc)}")


class KafkaRowLog(KafkaLogReader):
    """Owns a partition."""

    def __init__(
        self, settings: Mapping[str, Any], *, topic: str, partition: int, transactional_id: str
    ) -> None:
        """Connect when it is opened. The last process to open a ``transactional_id`` is the owner."""
        super().__init__(settings, topic=topic, partition=partition)
        self._id = transactional_id
        self._producer: Producer | None = None
        self._most_bytes = 0
        self._must_abort = False
        self._last: int | None = None
        self._failure: KafkaError | None = None

    @property
    def most_row_bytes(self) -> int:
        """How large the columns of a row may be together."""
        return self._most_bytes - _OVERHEAD_BYTES

    def open(self) -> None:
        """Become the owner. This is ``RowLog.open``."""
        try:
            self._most_bytes = int(self._setting("max.message.bytes"))
            self._producer = Producer(self._producer_settings())
            self._producer.init_transactions(_FENCE_S)
        except KafkaException as exc:
            raise self._lost_or_unavailable(exc) from exc
        except TimeoutError as exc:
            raise self._unavailable(exc) from exc

    def write(self, rows: Iterable[LoggedRow]) -> int:
        """Write rows, all or none. This is ``RowLog.write``."""
        producer = self._producer
        assert producer is not None, "it is open"
        try:
            if self._must_abort:
                self._abort(producer)
            producer.begin_transaction()
        except KafkaException as exc:
            raise self._lost_or_unavailable(exc) from exc
        self._must_abort = True
        try:
            self._produce(producer, rows)
            self._commit(producer)
        except LogUnavailable:
            self._end(producer)
            raise
        self._must_abort = False
        assert self._last is not None
        return self._last + 1

    def close(self) -> None:
        """Give the connections back."""
        self._producer = None

    def _produce(self, producer: Producer, rows: Iterable[LoggedRow]) -> None:
        """Hand rows over, and wait until the brokers have all of them."""
        topic, partition = self._place
        self._last = self._failure = None
        for row in rows:
            key, value = encode_key(row), encode_values(row)
            size = len(key) + len(value or b"")
            if size > self._most_bytes:
                raise LogUnavailable(
                    f"a row of {row.table!r} has {size} bytes, and a message of {self.name} may have"
                    f" {self._most_bytes}: set `max.message.bytes` of the topic higher"
                )
            while True:
                try:
                    producer.produce(topic, value, key, partition, on_delivery=self._note)
                    break
                except BufferError:  # librdkafka's queue is full
                    self._flush(producer)
                except KafkaException as exc:
                    raise self._lost_or_unavailable(exc) from exc
        left = self._flush(producer)
        if self._failure is not None:
            raise self._lost_or_unavailable(KafkaException(self._failure))
        if left:
            raise LogUnavailable(f"{self.name} did not take the rows within {_ANSWER_S:g} seconds")

    def _flush(self, producer: Producer) -> int:
        """Wait for the brokers; return how many messages they have not taken in time."""
        try:
            return producer.flush(_ANSWER_S)
        except KafkaException as exc:
            raise self._lost_or_unavailable(exc) from exc
        except SystemError as exc:  # a fatal error that was raised while callbacks still ran
            raise self._fatal_error(producer) from exc

    def _fatal_error(self, producer: Producer) -> LogLost | LogUnavailable:
        """Ask a client that failed why, as the error may get lost: each further call is answered with it."""
        try:
            producer.abort_transaction(_END_S)
        except KafkaException as exc:
            return self._lost_or_unavailable(exc)
        return LogLost(f"{self.name} takes nothing more from this process: its client failed")

    def _commit(self, producer: Producer) -> None:
        until_s = time.monotonic() + _COMMIT_S
        while True:
            try:
                producer.commit_transaction(_ANSWER_S)
            except KafkaException as exc:
                error: KafkaError = exc.args[0]
                if error.retriable() and time.monotonic() < until_s:
                    continue
                if error.txn_requires_abort() and error.code() not in _FENCED:
                    raise self._lost_or_unavailable(exc) from exc
                raise LogLost(f"nobody knows whether {self.name} has the rows: {text_of(error)}") from exc
            return

    def _end(self, producer: Producer) -> None:
        """End what was begun; if that fails, the next write tries again, as nothing else can follow.

        Raises:
            LogLost: the reason was that there is another owner.
        """
        try:
            self._abort(producer)
        except KafkaException as exc:
            found = self._lost_or_unavailable(exc)
            if isinstance(found, LogLost):
                raise found from exc

    def _abort(self, producer: Producer) -> None:
        producer.abort_transaction(_END_S)
        self._must_abort = False

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._last = message.offset()
        elif self._failure is None:
            self._failure = error

    def _lost_or_unavailable(self, exc: KafkaException) -> LogLost | LogUnavailable:
        error: KafkaError = exc.args[0]
        if error.code() in _FENCED:
            return LogLost(f"another process owns {self.name} now")
        if error.fatal():
            return LogLost(f"{self.name} takes nothing more from this process: {text_of(error)}")
        return LogUnavailable(f"{self.name} does not take the rows: {text_of(error)}")

    def _producer_settings(self) -> dict[str, Any]:
        return {
            "compression.type": "lz4",
            "linger.ms": 5,
            **self._settings,
            "transactional.id": self._id,
            "transaction.timeout.ms": _TRANSACTION_MS,
            "message.timeout.ms": int(_ANSWER_S * 1000),
            "message.max.bytes": _LARGEST_BYTES,
            "acks": "all",
        }
