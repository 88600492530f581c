"""The log of the budget as a topic of Apache Kafka with one partition. Its client is an extra."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ragtrace.errors import RagtraceError, ReadError, ReadUnavailable
from ragtrace_collector.kafka.errors import text_of
from ragtrace_collector.kafka.messages import bytes_of
from ragtrace_collector.store.budget_log.ledger import LoggedBudget
from ragtrace_collector.store.budget_log.log import BudgetLogReader
from ragtrace_collector.store.budget_log.replica import CHECKPOINT_EVERY, BudgetEntry, BudgetReplica
from ragtrace_collector.store.budget_log.table import LoggedSpend
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_PARTITION: Final = 0
_AT_ONCE: Final = 100
_MOST_BATCHES: Final = 8
"""Read and not yet applied: a loop that is behind must not fill the memory."""
_POLL_S: Final = 0.1
_ANSWER_S: Final = 2.0
_AGAIN_S: Final = 1.0
_REOPEN_S: Final = 5.0
_FLUSH_S: Final = 5.0
_READ_S: Final = 30.0
_MOST_QUEUED: Final = 20_000
_LARGEST_BYTES: Final = 16 << 20
"""What a checkpoint may have at most; the brokers' own limit comes first."""
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 -- named so by librdkafka
_ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001
_OF_CONNECTION: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}  # noqa: SLF001
)
_GONE: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
"""What was to be read next is not in the log any more."""
_OF_TOPIC: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_OF_ABSENCE: Final = _OF_TOPIC - {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def kafka_budget(
    settings: Mapping[str, Any], topic: str, *, client: str, checkpoint_every: int = CHECKPOINT_EVERY
) -> LoggedBudget:
    """Return the budget that all share who use this topic; ``open`` connects.

    Args:
        settings: How librdkafka reaches the brokers.
        topic: It has one partition, deletes nothing by itself and compacts nothing.
        client: Who this is in the brokers' logs.
        checkpoint_every: The same number for all.
    """
    return LoggedBudget(
        budget_log=KafkaBudgetLog(settings, topic, client=client), checkpoint_every=checkpoint_every
    )


@asynccontextmanager
async def open_kafka_budget(
    settings: Mapping[str, Any], topic: str, *, client: str
) -> AsyncIterator[LoggedBudget]:
    """Open the budget that all share who use this topic, for a program that cannot wait for brokers.

    Raises:
        ReadUnavailable: it cannot be used now.
    """
    budget = kafka_budget(settings, topic, client=client)
    try:
        await budget.open(wait_s=_READ_S)
        if (trouble := budget.trouble) is not None:
            raise ReadUnavailable(trouble)
        yield budget
    finally:
        await budget.aclose()


def read_budget(settings: Mapping[str, Any], topic: str, *, wait_s: float = _READ_S) -> LoggedSpend:
    """Return what was spent as of the end of the log; blocks, and writes nothing.

    Raises:
        ReadUnavailable: the brokers do not answer in time, or there is no such topic.
        ReadError: the log cannot be read: it has no beginning, or a newer ragtrace writes it.
    """
    consumer = Consumer(_consumer_settings(settings, topic, {"client.id": "ragtrace-budget"}))
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, _PARTITION), timeout=wait_s)
        consumer.assign([TopicPartition(topic, _PARTITION, first)])
        replica = BudgetReplica(first)
        _read_to_end(consumer, replica, end, wait_s=wait_s)
    except KafkaException as exc:
        raise ReadUnavailable(f"the log of the budget: {_in_words(topic, exc.args[0])}") from exc
    finally:
        consumer.close()
    if replica.newer is not None:
        raise ReadError(str(replica.newer))
    if replica.needs_checkpoint:
        raise ReadError(
            f"the beginning of topic {topic!r} was deleted and it has no checkpoint: what was spent is not "
            "known"
        )
    return replica.spend


def _read_to_end(consumer: Consumer, replica: BudgetReplica, end: int, *, wait_s: float) -> None:
    is_at_end = replica.next_offset >= end
    while not is_at_end and replica.newer is None:
        messages = consumer.consume(1, wait_s)
        if not messages:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        for message in messages:
            error = message.error()
            if error is None:
                entry = _entry_of(message)
                for _ in replica.read(entry):
                    pass
                is_at_end = entry.offset + 1 >= end
            elif error.code() == _END:
                is_at_end = True
            elif error.code() in _GONE or error.code() in _OF_TOPIC:
                raise KafkaException(error)


class KafkaBudgetLog:
    """A `BudgetLog` in a topic. One thread reads and polls the clients; `append` only queues a message.

    A message stays queued until the brokers have it: a time-out here would leave open whether they do.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, *, client: str) -> None:
        self._settings = settings
        self._topic = topic
        self._client = client
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragtrace-budget", daemon=True)
        self._producer: Producer | None = None
        self._admin: AdminClient | None = None
        self._doubted = threading.Event()
        self._room = threading.Semaphore(_MOST_BATCHES)
        self._trouble: str | None = "no broker has answered yet"
        self._last_error: str | None = None
        self._ended: str | None = None
        self._cannot_delete = False
        self._deleting: list[Future[Any]] = []

    def start(self, reader: BudgetLogReader) -> None:
        """Implement `BudgetLog`."""
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def append(self, number: int, value: bytes) -> None:
        """Implement `BudgetLog`."""
        if self._producer is None or self._stopping.is_set():
            raise StoreUnavailable(self._trouble or "the client is being opened")
        try:
            self._producer.produce(
                self._topic,
                value=value,
                partition=_PARTITION,
                on_delivery=partial(self._note_delivery, number),
            )
        except (KafkaException, BufferError) as exc:
            raise StoreUnavailable(f"topic {self._topic!r}: {text_of(exc)}") from exc

    def delete_before(self, offset: int) -> None:
        """Implement `BudgetLog`. The log can be read without it, in more time."""
        self._admin = self._admin or AdminClient(self._client_settings())
        asked = self._admin.delete_records([TopicPartition(self._topic, _PARTITION, offset)])
        self._deleting = list(asked.values())
        for each in self._deleting:
            each.add_done_callback(self._note_deletion)

    def doubt(self) -> None:
        """Implement `BudgetLog`."""
        self._doubted.set()

    async def aclose(self) -> None:
        """Implement `BudgetLog`."""
        self._stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_with_new_clients()
            except (KafkaException, _ClientFailed) as exc:
                self._tell(text_of(exc))
                self._stopping.wait(_REOPEN_S)

    def _follow_with_new_clients(self) -> None:
        self._ended = None
        consumer = Consumer(
            _consumer_settings(
                self._settings, self._topic, self._client_settings(), error_cb=self._note_error
            )
        )
        producer = self._producer = Producer(
            {
                **self._client_settings(),
                "enable.idempotence": True,
                "error_cb": self._note_error,
                "linger.ms": 0,
                "message.max.bytes": _LARGEST_BYTES,
                "message.timeout.ms": 0,
                "queue.buffering.max.messages": _MOST_QUEUED,
            }
        )
        try:
            while not self._stopping.is_set():
                if (end := self._begin(consumer, producer)) is not None:
                    self._follow(consumer, producer, end)
        finally:
            self._close(consumer, producer)

    def _begin(self, consumer: Consumer, producer: Producer) -> int | None:
        """Go to the beginning of the log, and return its end; ``None`` if they are not known."""
        place = TopicPartition(self._topic, _PARTITION)
        try:
            first, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
        except KafkaException as exc:
            self._tell(self._because(exc.args[0]))
            producer.poll(0)
            consumer.poll(0)
            self._stopping.wait(_AGAIN_S)
            return None
        consumer.assign([TopicPartition(self._topic, _PARTITION, first)])
        self._post(self._reader.begin, first)
        self._tell(None)
        if first == end:
            self._post(self._reader.reach_end)
        return end

    def _follow(self, consumer: Consumer, producer: Producer, end: int) -> None:
        """Read on, until the log has to be read from its beginning again.

        Args:
            end: The end that the log had first: behind it the brokers may wait before they say that no more
                is there.

        Raises:
            _ClientFailed: a client cannot go on.
        """
        while not self._stopping.is_set():
            message = consumer.poll(_POLL_S)
            producer.poll(0)
            if self._ended is not None:
                raise _ClientFailed(self._ended)
            found = [message, *consumer.consume(_AT_ONCE, 0)] if message is not None else []
            entries = [_entry_of(each) for each in found if each.error() is None]
            codes = {error.code() for each in found if (error := each.error()) is not None}
            if entries:
                self._tell(None)
                self._hand_over(entries)
            if codes & _GONE:
                return
            if _END in codes or (entries and entries[0].offset < end <= entries[-1].offset + 1):
                self._tell(None)
                self._post(self._reader.reach_end)
            for each in found:
                if (error := each.error()) is not None and error.code() != _END:
                    self._note_error(error)
            self._ask_if_doubted(consumer)

    def _ask_if_doubted(self, consumer: Consumer) -> None:
        """Ask for the topic while something is wrong: a quiet log gives no other sign of life."""
        if self._trouble is None and not self._doubted.is_set():
            return
        self._doubted.clear()
        try:
            topic = consumer.list_topics(self._topic, timeout=_ANSWER_S).topics[self._topic]
        except KafkaException as exc:
            self._tell(self._last_error or self._because(exc.args[0]))
            self._stopping.wait(_AGAIN_S)
            return
        if topic.error is not None:
            self._tell(_in_words(self._topic, topic.error))
            self._stopping.wait(_AGAIN_S)
            return
        self._last_error = None
        self._tell(None, is_news=True)

    def _close(self, consumer: Consumer, producer: Producer) -> None:
        self._producer = None
        if self._stopping.is_set():
            producer.flush(_FLUSH_S)
            wait(self._deleting, _FLUSH_S)
        producer.purge()
        producer.flush(_FLUSH_S)
        consumer.close()

    def _note_delivery(self, number: int, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._post(self._reader.lose, number, _in_words(self._topic, error))

    def _note_deletion(self, asked: Future[Any]) -> None:
        if (error := asked.exception()) is None or self._cannot_delete:
            return
        self._cannot_delete = True
        log.warning(
            "records before a checkpoint of the budget cannot be deleted (%s): its topic %s grows, and each "
            "start reads all of it; allow this client to delete records there",
            text_of(error) if isinstance(error, Exception) else error,
            self._topic,
            extra=event("budget_log_grows", topic=self._topic),
        )

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == _FATAL:
            self._ended = text_of(error)
        elif error.code() == _ALL_BROKERS_DOWN:
            self._tell(self._last_error or text_of(error))
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # it joins no group
            self._last_error = _in_words(self._topic, error)
            if error.code() in _OF_CONNECTION or error.code() in _OF_TOPIC:
                self._tell(self._last_error)

    def _because(self, error: KafkaError) -> str:
        if self._last_error is not None and error.code() not in _OF_TOPIC:
            return self._last_error
        return _in_words(self._topic, error)

    def _tell(self, trouble: str | None, *, is_news: bool = False) -> None:
        if trouble == self._trouble and not is_news:
            return
        self._trouble = trouble
        self._post(self._reader.tell, trouble)

    def _hand_over(self, entries: Sequence[BudgetEntry]) -> None:
        while not self._room.acquire(timeout=_POLL_S):
            if self._stopping.is_set():
                return
        self._post(self._read_on_loop, entries)

    def _read_on_loop(self, entries: Sequence[BudgetEntry]) -> None:
        try:
            self._reader.read(entries)
        finally:
            self._room.release()

    def _post(self, work: Callable[..., None], *values: object) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(work, *values)

    def _client_settings(self) -> dict[str, Any]:
        return {
            "log_level": 0,  # the callbacks say it: librdkafka would write lines of its own
            "socket.nagle.disable": True,
            **self._settings,
            "client.id": self._client,
        }


class _ClientFailed(RagtraceError):
    """A client of librdkafka cannot go on: new ones can try."""


def _consumer_settings(
    settings: Mapping[str, Any], topic: str, more: Mapping[str, Any], **callbacks: Callable[..., None]
) -> dict[str, Any]:
    """Return the settings of a consumer that is a member of no group, and reads what comes at once."""
    return {
        "group.id": topic,  # required, and not used
        "log_level": 0,
        **settings,
        **more,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "fetch.error.backoff.ms": 100,
        "fetch.min.bytes": 1,
        "isolation.level": "read_uncommitted",  # a transaction of somebody else must not stop the log
        **callbacks,
    }


def _entry_of(message: Message) -> BudgetEntry:
    offset, value = message.offset(), message.value()
    assert offset is not None
    return BudgetEntry(offset=offset, value=bytes_of(value))


def _in_words(topic: str, error: KafkaError) -> str:
    if error.code() in _OF_ABSENCE:
        return f"topic {topic!r} does not exist: `ragtrace kafka topics --apply` creates it"
    return f"topic {topic!r}: {text_of(error)}" if error.code() in _OF_TOPIC else text_of(error)
