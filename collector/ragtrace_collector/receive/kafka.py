"""OTLP from topics of Apache Kafka, as the OpenTelemetry Collector's kafka exporter writes it.

An offset is committed after the spans are on disk, so a message is read at least once: the store recognizes
spans that come again. What cannot be used becomes a dead letter, and reading goes on.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ragtrace.errors import CodecError
from ragtrace.ports import Clock
from ragtrace.traces.otlp import Encoding
from ragtrace_collector.config.values import KafkaConfig
from ragtrace_collector.receive.intake import Intake, Sender
from ragtrace_collector.receive.kafka_client import (
    ClientEnded,
    GroupConsumer,
    Partition,
    TopicMessage,
    reason_of,
    text_of,
)
from ragtrace_collector.store.records import DeadLetter, StoreUnavailable
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import ConsumerState, Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


T = TypeVar("T")

_AT_ONCE: Final = 128
_POLL_S: Final = 0.2
_FIRST_DELAY_S: Final = 0.2
_LONGEST_DELAY_S: Final = 5.0
_REOPEN_S: Final = 30.0
_SENDER: Final = "kafka"


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


@dataclass(frozen=True, slots=True)
class TopicSender:
    """Whoever writes into the topics: brokers decide about that, so it has no allowance here."""

    tenant: str | None

    def charge(self, *, spans: int, bytes: int) -> None:  # noqa: A002 -- as of a sender with a token
        """Take nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What became of a message."""

    message: TopicMessage
    is_postponed: bool = False
    unusable: Unusable | None = None


@dataclass(slots=True, kw_only=True)
class _Pressure:
    """How a partition is tried again whose messages cannot be stored."""

    try_again_s: float
    delay_s: float = _FIRST_DELAY_S

    def refused(self, now_s: float) -> None:
        self.try_again_s = now_s + self.delay_s
        self.delay_s = min(2 * self.delay_s, _LONGEST_DELAY_S)


@dataclass(slots=True, kw_only=True)
class KafkaReceiver:
    """A member of a consumer group: what it reads goes into the store."""

    config: KafkaConfig
    max_message_bytes: int
    intake: Intake
    store: Store
    sender: Callable[[], Sender | None]
    """Returns who writes into the topics, if the receivers need tokens or the topics have a tenant."""
    counters: Counters
    clock: Clock
    state: ConsumerState = field(default_factory=lambda: ConsumerState(trouble="it has not started yet"))
    """As of the last turn."""
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _running: asyncio.Task[None] | None = None
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="ragtrace-kafka")
    )
    _producer: DeadLetterProducer | None = None
    _waiting: list[TopicMessage] = field(default_factory=list)
    """Read, and not stored because the store is full, in the order of their offsets."""
    _pressure: dict[Partition, _Pressure] = field(default_factory=dict)
    """Of partitions with messages for which the store had no room."""
    _next: dict[Partition, int] = field(default_factory=dict)
    """The offset behind the last message that was read of each partition."""
    _unkeyed: set[str] = field(default_factory=set)
    """Topics with messages without a key."""

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
                    self._tell(ConsumerState(trouble=reason_of(exc)))
                    await self._pause_before_reopening()
        finally:
            self._thread.shutdown(wait=False)

    async def _read_as_member(self) -> None:
        consumer = await self._call(GroupConsumer, self.config)
        self._next, self._waiting, self._pressure = {}, [], {}
        try:
            while not self._stopping.is_set():
                messages = await self._call(consumer.poll, _AT_ONCE, _POLL_S)
                await self._turn(consumer, messages)
        finally:
            await self._call(consumer.close)

    async def _turn(self, consumer: GroupConsumer, messages: Sequence[TopicMessage]) -> None:
        self._waiting = [message for message in self._waiting if _is_kept(consumer, message.place)]
        self._note_read(consumer, messages)
        now_s = asyncio.get_running_loop().time()
        all_messages = [*self._waiting, *messages]
        due = [message for message in all_messages if self._is_due(message, now_s)]
        taken = set(map(id, due)) - await self._take_all(due)
        self._waiting = [message for message in all_messages if id(message) not in taken]
        await self._call(consumer.commit, self._offsets())
        await self._follow_pressure(consumer, {message.place for message in due}, now_s)
        self._tell(
            ConsumerState(
                trouble=consumer.trouble,
                is_paused=bool(self._pressure),
                partitions=consumer.owned,
                lag=await self._call(consumer.lag),
            )
        )

    def _is_due(self, message: TopicMessage, now_s: float) -> bool:
        """Whether a message may be stored now: the store is not known to be full."""
        pressure = self._pressure.get(message.place)
        return pressure is None or now_s >= pressure.try_again_s

    def _note_read(self, consumer: GroupConsumer, messages: Sequence[TopicMessage]) -> None:
        self.counters.add(Counts.KAFKA_MESSAGES, len(messages))
        self._next = {place: offset for place, offset in self._next.items() if _is_kept(consumer, place)}
        for message in messages:
            self._next[message.place] = message.offset + 1
            if message.key is None:
                self.counters.add(Counts.KAFKA_UNKEYED)
                self._warn_of_unkeyed(message.topic, consumer.partitions.get(message.topic))

    def _warn_of_unkeyed(self, topic: str, partitions: int | None) -> None:
        if topic in self._unkeyed or partitions == 1:
            return
        self._unkeyed.add(topic)
        log.warning(
            "topic %s has messages without a key: the spans of a trace may be in several partitions, and a "
            "second collector of this group would get a part of them: set `partition_traces_by_id: true` on "
            "the kafka exporter",
            topic,
            extra=event("kafka_unkeyed", topic=topic),
        )

    async def _take_all(self, messages: Sequence[TopicMessage]) -> set[int]:
        """Store what messages hold, which then share commits; return the ids of those to try again."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._take(message)) for message in messages]
        taken = [task.result() for task in tasks]
        left = {id(each.message) for each in taken if each.is_postponed}
        return left | await self._bury([each for each in taken if each.unusable])

    async def _take(self, message: TopicMessage) -> _Taken:
        try:
            return _Taken(message=message, unusable=await self._accept(message))
        except (StoreUnavailable, MemoryError):  # neither is the message's fault
            return _Taken(message=message, is_postponed=True)
        except CodecError:
            return _Taken(message=message, unusable=Unusable.NOT_OTLP)
        except Exception:  # a message that cannot be read must not stop the others
            self.counters.add(Counts.STAGE_ERRORS)
            log.exception(
                "a message could not be read", extra=event("kafka_message_failed", **_place(message))
            )
            return _Taken(message=message, unusable=Unusable.ERROR)

    async def _accept(self, message: TopicMessage) -> Unusable | None:
        body = message.value
        if not body:
            return Unusable.EMPTY
        if len(body) > self.max_message_bytes:
            return Unusable.TOO_LARGE
        with self.intake.room.for_request(_SENDER) as place:
            await place.reserve(len(body))
            # no request of Protocol Buffers begins with this byte
            encoding: Encoding = "json" if body.lstrip()[:1] == b"{" else "protobuf"
            receipt = await self.intake.accept(body, encoding=encoding, sender=self.sender())
        return None if receipt.spans else Unusable.NO_SPANS

    async def _bury(self, unusable: Sequence[_Taken]) -> set[int]:
        """Copy messages into their dead-letter topics and note them; return the ids of those not noted."""
        left: set[int] = set()
        for each, copied_to in zip(unusable, await self._copy(unusable), strict=True):
            message, reason = each.message, str(each.unusable)
            letter = DeadLetter(
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                reason=reason,
                bytes=len(message.value or b""),
                copied_to=copied_to,
            )
            try:
                is_new = await self.store.note_dead_letter(letter, now_ns=self.clock.now_ns())
            except StoreUnavailable:
                left.add(id(message))
                continue
            if is_new:
                self.counters.add(Counts.KAFKA_DEAD_LETTERS)
                log.warning(
                    "a message cannot be used (%s): topic %s, partition %d, offset %d",
                    reason,
                    *(message.topic, message.partition, message.offset),
                    extra=event("dead_letter", reason=reason, copied_to=copied_to, **_place(message)),
                )
        return left

    async def _copy(self, unusable: Sequence[_Taken]) -> Sequence[str]:
        """Return for each message the topic that has a copy now; nothing if none has."""
        topics = [self.config.dead_letter_topic(each.message.topic) for each in unusable]
        copies = [
            Copy(message=each.message, topic=topic, reason=str(each.unusable))
            for each, topic in zip(unusable, topics, strict=True)
            if topic
        ]
        if not copies:
            return [""] * len(unusable)
        if self._producer is None:
            self._producer = await self._call(DeadLetterProducer, self.config)
        troubles = await self._call(self._producer.send, copies)
        for copy, trouble in zip(copies, troubles, strict=True):
            if trouble:
                log.error(
                    "a dead letter could not be copied to topic %s, and is only noted: %s",
                    copy.topic,
                    trouble,
                    extra=event("dead_letter_not_copied", copied_to=copy.topic, **_place(copy.message)),
                )
        return [copy.topic if not trouble else "" for copy, trouble in zip(copies, troubles, strict=True)]

    def _offsets(self) -> Mapping[Partition, int]:
        """Return where the group may begin again in each partition: before the first message that waits."""
        first_waiting = {message.place: message.offset for message in reversed(self._waiting)}
        return {**self._next, **first_waiting}

    async def _follow_pressure(
        self, consumer: GroupConsumer, tried: AbstractSet[Partition], now_s: float
    ) -> None:
        """Fetch nothing of partitions whose messages wait for room in the store."""
        waiting = {message.place for message in self._waiting}
        refused = waiting & tried
        before = set(self._pressure)
        for place in refused:
            self._pressure.setdefault(place, _Pressure(try_again_s=now_s)).refused(now_s)
        for place in before - waiting:
            del self._pressure[place]
        if self._pressure and not before:
            self.counters.add(Counts.KAFKA_PAUSES)
            log.warning("nothing is read from Kafka until the store has room", extra=event("kafka_paused"))
        elif before and not self._pressure:
            log.info("messages are read from Kafka again", extra=event("kafka_resumed"))
        await self._call(consumer.pause, waiting)

    def _tell(self, state: ConsumerState) -> None:
        before, self.state = self.state, state
        if _kind(state.trouble) == _kind(before.trouble):
            return
        if state.trouble:
            log.warning("nothing can be read from Kafka: %s", state.trouble, extra=event("kafka_unavailable"))
        else:
            topics = ", ".join(self.config.topics)
            log.info("connected to Kafka: reading %s", topics, extra=event("kafka_connected", topics=topics))

    async def _pause_before_reopening(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_REOPEN_S):
                await self._stopping.wait()

    async def _call(self, work: Callable[..., T], *values: object) -> T:
        """Run what blocks in the client's own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *values)


def _is_kept(consumer: GroupConsumer, place: Partition) -> bool:
    """Say whether a partition was this member's all the time: another may have read on meanwhile."""
    return consumer.owns(place) and place not in consumer.assigned


def _place(message: TopicMessage) -> dict[str, str | int]:
    return {"topic": message.topic, "partition": message.partition, "offset": message.offset}


def _kind(trouble: str | None) -> str | None:
    """Return a trouble without its numbers: times and connections change with each attempt."""
    return trouble and re.sub(r"\d+", "", trouble)


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
