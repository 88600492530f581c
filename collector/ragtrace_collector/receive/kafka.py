"""OTLP from topics of Apache Kafka, as the OpenTelemetry Collector's kafka exporter writes it.

An offset is committed after the spans are on disk, so a message is read at least once: the store recognizes
spans that come again. What cannot be used becomes a dead letter, and reading goes on. Every method of the
client blocks; one thread calls them all.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ragtrace.errors import CodecError, ConfigError, RagtraceError, ReadUnavailable
from ragtrace.traces.otlp import Encoding
from ragtrace_collector.config.values import KafkaConfig
from ragtrace_collector.receive.intake import Intake
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import ConsumerState, Counters, Counts
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.web.tokens import TokenSender

log = logging.getLogger("ragtrace.collector")


T = TypeVar("T")

_AT_ONCE: Final = 128
_POLL_S: Final = 0.2
_TRY_AGAIN_S: Final = 1.0
_REOPEN_S: Final = 30.0
_SENDER: Final = "kafka"

Partition = tuple[str, int]
"""A topic and the number of a partition."""


class Unusable(StrEnum):
    """Why a message is a dead letter."""

    EMPTY = "empty"
    """It has no value."""
    TOO_LARGE = "too_large"
    """It is larger than ``receive.max_message_bytes``."""
    NOT_OTLP = "not_otlp"
    """It is neither OTLP of Protocol Buffers nor of JSON."""
    NO_SPANS = "no_spans"
    """It holds no span with valid ids: logs or metrics, say."""
    ERROR = "error"
    """Reading it failed unexpectedly; the log has the class of the error."""


class TopicMessage(NamedTuple):
    """A message of a topic."""

    place: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]

    def fields(self) -> dict[str, str | int]:
        """Return where it is."""
        topic, partition = self.place
        return {"topic": topic, "partition": partition, "offset": self.offset}


@dataclass(slots=True, kw_only=True)
class KafkaReceiver:
    """A member of a consumer group: what it reads goes into the store."""

    config: KafkaConfig
    max_message_bytes: int
    intake: Intake
    store: Store
    sender: Callable[[], TokenSender | None]
    """Returns who writes into the topics, if the receivers need tokens or the topics have a tenant."""
    counters: Counters
    state: ConsumerState = field(default_factory=lambda: ConsumerState(trouble="it has not started yet"))
    """As of the last turn."""
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _running: asyncio.Task[None] | None = None
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="ragtrace-kafka")
    )
    _producer: Producer | None = None
    _waiting: list[TopicMessage] = field(default_factory=list)
    """Read, and not stored because the store is full, in the order of their offsets."""
    _try_again_s: float = 0.0
    _next: dict[Partition, int] = field(default_factory=dict)
    """The offset behind the last message that was read of each partition."""

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Read in a task of this group, until ``stop``."""
        self._running = tasks.create_task(self._run(), name="kafka")

    async def stop(self) -> None:
        """Read no more: what is read is stored and committed, and the group gets its partitions back."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        """Read as a member of the group. If the client ends, another one takes its place."""
        try:
            while not self._stopping.is_set():
                try:
                    await self._read_as_member()
                except (ClientEnded, KafkaException) as exc:
                    self._tell(ConsumerState(trouble=text_of(exc)))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_REOPEN_S):
                            await self._stopping.wait()
        finally:
            self._thread.shutdown(wait=False)

    async def _read_as_member(self) -> None:
        consumer = await self._call(GroupConsumer, self.config)
        self._next, self._waiting = {}, []
        try:
            while not self._stopping.is_set():
                await self._turn(consumer, await self._call(consumer.poll))
        finally:
            await self._call(consumer.close)

    async def _turn(self, consumer: GroupConsumer, messages: Sequence[TopicMessage]) -> None:
        # what was another member's meanwhile may have been read on
        kept = consumer.owned - consumer.assigned
        self._next = {place: offset for place, offset in self._next.items() if place in kept}
        self._waiting = [message for message in self._waiting if message.place in kept]
        self._note_read(messages)
        self._waiting += messages
        was_paused, now_s = self.state.is_paused, asyncio.get_running_loop().time()
        if not was_paused or now_s >= self._try_again_s:
            self._waiting = await self._take_all(self._waiting)
            self._try_again_s = now_s + _TRY_AGAIN_S
        first_waiting = {message.place: message.offset for message in reversed(self._waiting)}
        await self._call(consumer.commit, {**self._next, **first_waiting})
        is_paused = bool(self._waiting)
        await self._call(consumer.pause, is_paused)
        if is_paused and not was_paused:
            self.counters.add(Counts.KAFKA_PAUSES)
            log.warning("nothing is read from Kafka until the store has room", extra=event("kafka_paused"))
        elif was_paused and not is_paused:
            log.info("messages are read from Kafka again", extra=event("kafka_resumed"))
        self._tell(
            ConsumerState(
                trouble=consumer.trouble,
                is_paused=is_paused,
                partitions=len(consumer.owned),
                lag=await self._call(consumer.lag),
            )
        )

    def _note_read(self, messages: Sequence[TopicMessage]) -> None:
        self.counters.add(Counts.KAFKA_MESSAGES, len(messages))
        self.counters.add(Counts.KAFKA_UNKEYED, sum(message.key is None for message in messages))
        self._next |= {message.place: message.offset + 1 for message in messages}

    async def _take_all(self, messages: Sequence[TopicMessage]) -> list[TopicMessage]:
        """Store what messages hold, which then share commits; return those to try again."""
        results = await asyncio.gather(*map(self._take, messages), return_exceptions=True)
        left: list[TopicMessage] = []
        unusable: list[tuple[TopicMessage, Unusable]] = []
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, StoreUnavailable | MemoryError):  # neither is the message's fault
                left.append(message)
            elif isinstance(result, Unusable):
                unusable.append((message, result))
            elif isinstance(result, BaseException):
                raise result
        left += await self._bury(unusable)
        return sorted(left, key=lambda message: message.offset)

    async def _take(self, message: TopicMessage) -> Unusable | None:
        try:
            return await self._accept(message)
        except (StoreUnavailable, MemoryError):
            raise
        except CodecError:
            return Unusable.NOT_OTLP
        except Exception:  # a message that cannot be read must not stop the others
            self.counters.add(Counts.STAGE_ERRORS)
            log.exception(
                "a message could not be read", extra=event("kafka_message_failed", **message.fields())
            )
            return Unusable.ERROR

    async def _accept(self, message: TopicMessage) -> Unusable | None:
        body = message.value
        if not body:
            return Unusable.EMPTY
        if len(body) > self.max_message_bytes:
            return Unusable.TOO_LARGE
        with self.intake.room.for_request(_SENDER) as place:
            place.reserve(len(body))
            # no request of Protocol Buffers begins with this byte
            encoding: Encoding = "json" if body.lstrip()[:1] == b"{" else "protobuf"
            receipt = await self.intake.accept(body, encoding=encoding, sender=self.sender())
        return None if receipt.spans else Unusable.NO_SPANS

    async def _bury(self, unusable: Sequence[tuple[TopicMessage, Unusable]]) -> list[TopicMessage]:
        """Copy messages into their dead-letter topics and count them; return those not counted."""
        if not unusable:
            return []
        try:
            await self.store.count_dead_letters([reason for _, reason in unusable])
        except StoreUnavailable:
            return [message for message, _ in unusable]
        copied = await self._call(self._copy, unusable)
        for (message, reason), (copied_to, trouble) in zip(unusable, copied, strict=True):
            self.counters.add(Counts.KAFKA_DEAD_LETTERS)
            fields = message.fields()
            log.warning(
                "a message cannot be used (%s): topic %s, partition %d, offset %d",
                reason,
                *fields.values(),
                extra=event("dead_letter", reason=reason, copied_to=copied_to, **fields),
            )
            if trouble:
                log.error(
                    "a dead letter could not be copied to topic %s, and is only logged: %s",
                    copied_to,
                    trouble,
                    extra=event("dead_letter_not_copied", copied_to=copied_to, **fields),
                )
        return []

    def _copy(self, unusable: Sequence[tuple[TopicMessage, Unusable]]) -> Sequence[tuple[str, str | None]]:
        """Return for each message its dead-letter topic, if there is one, and why it is not there."""
        topics = [self.config.dead_letter_topic(message.place[0]) or "" for message, _ in unusable]
        troubles: list[str | None] = [topic and "it took too long" for topic in topics]
        self._producer = self._producer or _producer(self.config)
        for position, ((message, reason), topic) in enumerate(zip(unusable, topics, strict=True)):
            if not topic:
                continue

            def note(error: KafkaError | None, _: Message, position: int = position) -> None:
                troubles[position] = text_of(error) if error is not None else None

            origin = {"reason": reason, **message.fields()}
            headers = [(f"ragtrace.{name}", str(value).encode()) for name, value in origin.items()]
            try:
                self._producer.produce(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=[*message.headers, *headers],
                    on_delivery=note,
                )
            except (KafkaException, BufferError) as exc:
                troubles[position] = text_of(exc)
        self._producer.flush(2 * _DELIVERY_TIMEOUT_S)
        return list(zip(topics, troubles, strict=True))

    def _tell(self, state: ConsumerState) -> None:
        before, self.state = self.state, state
        if _kind(state.trouble) == _kind(before.trouble):
            return
        if state.trouble:
            log.warning("nothing can be read from Kafka: %s", state.trouble, extra=event("kafka_unavailable"))
        else:
            topics = ", ".join(self.config.topics)
            log.info("connected to Kafka: reading %s", topics, extra=event("kafka_connected", topics=topics))

    async def _call(self, work: Callable[..., T], *values: object) -> T:
        """Run what blocks in the client's own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *values)


def _kind(trouble: str | None) -> str | None:
    """Return a trouble without its numbers: times and connections change with each attempt."""
    return trouble and re.sub(r"\d+", "", trouble)


_DELIVERY_TIMEOUT_S: Final = 10.0
_LARGEST_BYTES: Final = 1_000_000_000
"""What librdkafka takes at most: the brokers say how large a message may be."""


def _producer(config: KafkaConfig) -> Producer:
    return Producer(
        {
            **config.client_settings(),
            "acks": "all",
            "compression.type": "zstd",
            "message.max.bytes": _LARGEST_BYTES,
            "message.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
        }
    )


_PROBE_S: Final = 2.0
_TIMEOUT_S: Final = 5.0
_QUEUED_KILOBYTES: Final = 16 << 10
_REFUSED: Final = "the brokers refuse the credentials"
_AUTHENTICATION: Final = KafkaError._AUTHENTICATION  # noqa: SLF001 -- named so by librdkafka
_ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_OF_CONNECTION: Final = frozenset({_AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})  # noqa: SLF001
_ENDS: Final = frozenset(
    {
        KafkaError._FATAL,  # noqa: SLF001
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INVALID_SESSION_TIMEOUT,
    }
)


class ClientEnded(RagtraceError):
    """The client cannot go on, as when another one took its ``group.instance.id``: a new one can try."""


class GroupConsumer:
    """A member of the consumer group. The client commits the offsets that ``commit`` names."""

    def __init__(self, config: KafkaConfig) -> None:
        self.trouble: str | None = "no broker has answered yet"
        """Why nothing comes; ``None`` while the topics can be read."""
        self.owned: set[Partition] = set()
        """The partitions that the group gave this member."""
        self.assigned: set[Partition] = set()
        """Partitions that the last ``poll`` was given: what is known of them is of an earlier time."""
        self._config = config
        self._offsets: dict[Partition, int] = {}
        """Up to where the group has read."""
        self._last_error: str | None = None
        self._ended: str | None = None
        self._is_paused = False
        self._probed_s = -_PROBE_S
        self._consumer = Consumer(_consumer_settings(config, error_cb=self._note_error))
        self._consumer.subscribe(
            list(config.topics),
            on_assign=self._note_assigned,
            on_revoke=self._note_revoked,
            on_lost=self._note_revoked,
        )

    def poll(self) -> Sequence[TopicMessage]:
        """Return what has come, at least one message if any comes in time.

        Raises:
            ClientEnded: the client cannot go on.
        """
        self.assigned = set()
        first = self._consumer.poll(_POLL_S)
        found = [first, *self._consumer.consume(_AT_ONCE - 1, 0)] if first is not None else []
        messages = [_message_of(each) for each in found if not self._is_error(each)]
        if self._ended is not None:
            raise ClientEnded(self._ended)
        if messages:
            self.trouble = None
        elif self.trouble and time.monotonic() - self._probed_s >= _PROBE_S:
            self._probe()
        if self.assigned:
            with suppress(KafkaException):  # else it is known after the next commit
                begin = self._consumer.committed(_places(self.assigned), timeout=_TIMEOUT_S)
                self._offsets |= {_place(each): each.offset for each in begin if each.offset >= 0}
        return [message for message in messages if message.place in self.owned]

    def pause(self, is_paused: bool) -> None:
        """Fetch nothing, or again; the member stays in its group."""
        if is_paused:
            self._consumer.pause(_places(self.owned))
        elif self._is_paused or self.assigned:  # librdkafka may hold a pause from before they were lost
            self._consumer.resume(_places(self.owned))
        self._is_paused = is_paused

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Let the client commit these offsets within a second, and when it leaves."""
        changed = {place: offset for place, offset in offsets.items() if self._offsets.get(place) != offset}
        for place in changed.keys() & self.owned:
            with suppress(KafkaException):  # it is not ours any more
                self._consumer.store_offsets(offsets=[TopicPartition(*place, changed[place])])
                self._offsets[place] = changed[place]

    def lag(self) -> Mapping[Partition, int]:
        """Return how many messages of each partition were not read, as far as that is known."""
        found: dict[Partition, int] = {}
        for place in self.owned & self._offsets.keys():
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            if end >= 0:
                found[place] = max(0, end - self._offsets[place])
        return found

    def close(self) -> None:
        """Leave the group, unless the member has a ``group.instance.id``, after the last commit."""
        self._consumer.close()

    def _probe(self) -> None:
        """Ask for the topics while something is wrong: a quiet topic gives no other sign of life."""
        try:
            found = [self._consumer.list_topics(name, timeout=_PROBE_S) for name in self._config.topics]
        except KafkaException as exc:
            self.trouble = self._last_error or text_of(exc)
        else:
            topics = [topic for metadata in found for topic in metadata.topics.values()]
            self._last_error = None
            self.trouble = (
                "; ".join(_of_topic(each.topic, each.error) for each in topics if each.error) or None
            )
        self._probed_s = time.monotonic()

    def _is_error(self, message: Message) -> bool:
        error = message.error()
        if error is not None and error.code() in _OF_TOPIC:
            self.trouble = _of_topic(message.topic() or ", ".join(self._config.topics), error)
        elif error is not None:
            self._note_error(error)
        return error is not None

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _ENDS:
            self._ended = text_of(error)
        elif error.code() == _ALL_BROKERS_DOWN:
            self.trouble = self._last_error or text_of(error)
        elif error.code() == _AUTHENTICATION:
            self.trouble = self._last_error = f"{_REFUSED} in `receive.kafka.options`: {text_of(error)}"
        elif not (self._last_error or "").startswith(_REFUSED):  # that a connection ends then says less
            self._last_error = text_of(error)
            if error.code() in _OF_CONNECTION:
                self.trouble = self._last_error

    def _note_assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.owned.update(map(_place, places))
        self.assigned.update(map(_place, places))

    def _note_revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        for place in map(_place, places):
            self.owned.discard(place)
            self._offsets.pop(place, None)


def _consumer_settings(config: KafkaConfig, **callbacks: Callable[..., None]) -> dict[str, Any]:
    return {
        "group.id": config.group,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": 1_000,
        "partition.assignment.strategy": "cooperative-sticky",
        "queued.max.messages.kbytes": _QUEUED_KILOBYTES,
        **callbacks,
        **config.client_settings(),
    }


def _place(found: TopicPartition) -> Partition:
    return found.topic, found.partition


def _places(places: set[Partition]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]


def _message_of(message: Message) -> TopicMessage:
    return TopicMessage(
        place=cast("Partition", (message.topic(), message.partition())),
        offset=cast("int", message.offset()),
        key=message.key(),
        value=message.value(),
        headers=[(name, value or b"") for name, value in cast("Any", message.headers() or [])],
    )


_OF_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


def _of_topic(topic: str, error: KafkaError) -> str:
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return f"topic {topic!r} does not exist: it is waited for"
    return f"topic {topic!r}: {text_of(error)}"


_WHEN: Final = re.compile(r" \(after \d+ms in state \w+\)")
"""It differs each time, so that one trouble would be told again and again."""


def text_of(error: KafkaError | Exception) -> str:
    """Return what is wrong, in one sentence."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return _WHEN.sub("", inner.str() if isinstance(inner, KafkaError) else str(inner) or type(error).__name__)


def check_settings(config: KafkaConfig) -> None:
    """See that librdkafka takes the settings, without a connection.

    Raises:
        ConfigError: it refuses one, or cannot read a certificate.
    """
    settings = _consumer_settings(config)
    del settings["bootstrap.servers"]
    try:
        Consumer(settings).close()
    except KafkaException as exc:
        text = text_of(exc)
        for name, value in config.options.items():
            if name not in _OPEN and value.get_secret_value():
                text = text.replace(value.get_secret_value(), "…")
        raise ConfigError(f"`receive.kafka`: {text}") from None


_OPEN: Final = {"security.protocol", "sasl.mechanism", "sasl.mechanisms", "ssl.ca.location"}
"""Options whose values are no secrets, and may be parts of messages."""


class TopicState(NamedTuple):
    """How a topic is."""

    name: str
    partitions: int
    """Zero if it does not exist."""
    fault: str = ""
    """What is wrong, if anything is."""


def topic_states(settings: Mapping[str, Any], names: Sequence[str]) -> Iterator[TopicState]:
    """Yield how topics are, by a client with these settings. It does not let brokers create one, and blocks.

    Raises:
        ReadUnavailable: the brokers do not answer or refuse.
    """
    errors: list[KafkaError] = []
    noting: dict[str, Any] = {"log_level": 0, **settings, "error_cb": errors.append}
    admin = AdminClient(noting)
    try:
        topics = admin.list_topics(timeout=_ADMIN_S).topics
        for name in names:
            partitions = len(topics[name].partitions) if name in topics else 0
            if not partitions:
                yield TopicState(name, 0, "it does not exist")
                continue
            asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)])
            [configured] = [future.result(_ADMIN_S) for future in asked.values()]
            policy = configured["cleanup.policy"].value
            lossy = f"`cleanup.policy` is {policy}: of messages with one key, only the last would stay"
            yield TopicState(name, partitions, "" if policy == "delete" else lossy)
    except (KafkaException, TimeoutError) as exc:
        known = [error for error in errors if error.code() != _ALL_BROKERS_DOWN]
        refused = next((error for error in known if error.code() == _AUTHENTICATION), None)
        said = text_of(refused or (known[-1] if known else exc))
        raise ReadUnavailable(f"{_REFUSED if refused else 'the brokers do not answer'}: {said}") from exc


_ADMIN_S: Final = 20.0
