"""Kafka: what the receiver needs of its client, librdkafka, the texts of its errors, and the state of topics.

Every method of the consumer blocks; one thread calls them all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ragtrace.errors import ConfigError, RagtraceError, ReadUnavailable
from ragtrace_collector.config.values import KafkaConfig

_AUTHENTICATION: Final = KafkaError._AUTHENTICATION  # noqa: SLF001 -- named so by librdkafka
_ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_AWAY: Final = frozenset(
    {_ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}  # noqa: SLF001
)


class LastError:
    """What was said last of a client's connections."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Be the client's ``error_cb``."""
        if error.code() != _ALL_BROKERS_DOWN:  # it says less than what was told of each
            self._last = error

    def take(self) -> KafkaError | None:
        """Return it, and forget it."""
        last, self._last = self._last, None
        return last


class Admin(AdminClient):
    """Remembers the last error of its connections: its answers say only that none came."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Connect when it is used."""
        self.last_error = LastError()  # no method of its own: a client that calls itself back stays until gc
        noting: dict[str, Any] = {"log_level": 0, **settings, "error_cb": self.last_error.note}
        super().__init__(noting)

    def reason(self, exc: KafkaException) -> str:
        """Return what the brokers do, as the end of a sentence: ``do not answer: …`` or ``refuse: …``."""
        self.poll(0)  # calls back
        answer: KafkaError = exc.args[0]
        if answer.code() not in _AWAY:
            return f"refuse: {text_of(answer)}"
        error = self.last_error.take() or answer
        is_refused = error.code() == _AUTHENTICATION
        return f"{'refuse the credentials' if is_refused else 'do not answer'}: {text_of(error)}"


_WHEN: Final = re.compile(r" \(after \d+ms in state \w+\)")
"""It differs each time, so that one trouble would be told again and again."""


def text_of(error: KafkaError | Exception) -> str:
    """Return what is wrong, in one sentence."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return _WHEN.sub("", inner.str() if isinstance(inner, KafkaError) else str(inner) or type(error).__name__)


def bytes_of(value: str | bytes | None) -> bytes | None:
    """Return a key, a value or a header as it came: it is text to the client's types only."""
    return value.encode() if isinstance(value, str) else value


_TIMEOUT_S: Final = 20.0
_MORE_S: Final = 5.0
"""The client says by itself when the time is over."""
_CLEANUP: Final = "cleanup.policy"


class TopicState(NamedTuple):
    """How a topic is."""

    name: str
    partitions: int
    """None if it does not exist."""
    cleanup: str
    """Its ``cleanup.policy``: ``delete`` is right."""

    @property
    def fault(self) -> str | None:
        """What is wrong, if anything is."""
        if not self.partitions:
            return "it does not exist"
        if self.cleanup != "delete":
            return f"`{_CLEANUP}` is {self.cleanup}: of messages with one key, only the last would stay"
        return None


def topic_states(settings: Mapping[str, Any], names: Sequence[str]) -> Iterator[TopicState]:
    """Yield how topics are, by a client with these settings. It does not let brokers create one, and blocks.

    Raises:
        ReadUnavailable: the brokers do not answer or refuse.
    """
    admin = Admin(settings)

    def result(asked: Future[Any]) -> Any:
        try:
            return asked.result(_TIMEOUT_S + _MORE_S)
        except TimeoutError as exc:
            raise ReadUnavailable("the brokers do not answer") from exc
        except KafkaException as exc:
            raise ReadUnavailable(f"the brokers {admin.reason(exc)}") from exc

    described = admin.describe_topics(TopicCollection(list(names)), request_timeout=_TIMEOUT_S)
    for name, asked in described.items():
        try:
            partitions = len(result(asked).partitions)
        except ReadUnavailable as exc:
            if not _is_unknown(exc):
                raise
            yield TopicState(name, 0, "")
            continue
        resource = ConfigResource(ResourceType.TOPIC, name)
        [configured] = admin.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
        yield TopicState(name, partitions, str(result(configured)[_CLEANUP].value))


def _is_unknown(exc: ReadUnavailable) -> bool:
    cause = exc.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


Partition = tuple[str, int]
"""A topic and the number of a partition."""

_PROBE_S: Final = 2.0
_PROBE_TIMEOUT_S: Final = 2.0
_COMMITTED_TIMEOUT_S: Final = 5.0
_QUEUED_KILOBYTES: Final = 16 << 10
_REFUSED: Final = "the brokers refuse the credentials"
_OF_GROUP: Final = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INVALID_SESSION_TIMEOUT,
    }
)
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001
_OF_CONNECTION: Final = frozenset({_AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})  # noqa: SLF001


class ClientEnded(RagtraceError):
    """The client cannot go on, as when another one took its ``group.instance.id``: a new one can try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMessage:
    """A message of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = field(default=(), repr=False)

    @property
    def place(self) -> Partition:
        """Its partition."""
        return self.topic, self.partition


def reason_of(error: ClientEnded | KafkaException) -> str:
    """Return what is wrong, in one sentence."""
    return str(error) if isinstance(error, ClientEnded) else text_of(error)


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
        raise ConfigError(f"`receive.kafka`: {_without_secrets(text_of(exc), config)}") from None


class GroupConsumer:
    """A member of the consumer group. Its offsets are committed by ``commit`` only."""

    def __init__(self, config: KafkaConfig) -> None:
        self.trouble: str | None = "no broker has answered yet"
        """Why nothing comes; ``None`` while the topics can be read."""
        self.partitions: dict[str, int] = {}
        """How many partitions each topic has, as far as that is known."""
        self.assigned: set[Partition] = set()
        """Partitions that the last ``poll`` was given: what is known of them is of an earlier time."""
        self._config = config
        self._owned: set[Partition] = set()
        self._requested: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._without_start: set[Partition] = set()
        self._group_trouble: str | None = None
        self._last_error: str | None = None
        self._ended: str | None = None
        self._paused: set[Partition] = set()
        self._unsure: set[Partition] = set()
        """Assigned since: librdkafka may still hold a pause from before they were lost."""
        self._probed_s = -_PROBE_S
        self._consumer = Consumer(
            _consumer_settings(config, error_cb=self._note_error, on_commit=self._note_commit)
        )
        self._consumer.subscribe(
            list(config.topics),
            on_assign=self._note_assigned,
            on_revoke=self._note_revoked,
            on_lost=self._note_revoked,
        )

    def poll(self, most: int, wait_s: float) -> Sequence[TopicMessage]:
        """Return what has come, at least one message if any comes in time.

        Raises:
            ClientEnded: the client cannot go on.
        """
        self.assigned = set()
        first = self._consumer.poll(wait_s)
        found = [first, *self._consumer.consume(most - 1, 0)] if first is not None else []
        if self._ended is not None:
            raise ClientEnded(self._ended)
        messages = [_message_of(each) for each in found if not self._is_error(each)]
        if messages:
            self.trouble = self._group_trouble = None
        self._look_after_trouble()
        self._find_starts()
        return [message for message in messages if message.place in self._owned]

    def owns(self, place: Partition) -> bool:
        """Say whether the group gave the partition to this member."""
        return place in self._owned

    @property
    def owned(self) -> int:
        """How many partitions this member has."""
        return len(self._owned)

    def pause(self, places: Collection[Partition]) -> None:
        """Fetch nothing of these partitions, and of all others again; the member stays in its group."""
        wanted = self._owned & set(places)
        if more := wanted - self._paused:
            self._consumer.pause([TopicPartition(*place) for place in more])
        if less := ((self._paused | self._unsure) & self._owned) - wanted:
            self._consumer.resume([TopicPartition(*place) for place in less])
        self._paused, self._unsure = wanted, set()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Let the group begin there after a restart. The next call repeats a commit that failed."""
        changed = {
            place: offset
            for place, offset in offsets.items()
            if place in self._owned and self._requested.get(place) != offset
        }
        if changed:
            self._requested.update(changed)
            try:
                self._consumer.commit(
                    offsets=[
                        TopicPartition(topic, number, offset) for (topic, number), offset in changed.items()
                    ],
                    asynchronous=True,
                )
            except KafkaException:
                self._forget_requests(changed)

    def lag(self) -> Mapping[Partition, int]:
        """Return how many messages of each partition are not committed, as far as that is known."""
        found: dict[Partition, int] = {}
        for place in self._owned & self._committed.keys():
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            if end >= 0:
                found[place] = max(0, end - self._committed[place])
        return found

    def close(self) -> None:
        """Leave the group, unless the member has a ``group.instance.id``, after the last commit."""
        self._consumer.close()

    def _look_after_trouble(self) -> None:
        """Ask for the topics while something is wrong: a quiet topic gives no other sign of life."""
        if self.trouble is None or time.monotonic() - self._probed_s < _PROBE_S:
            return
        try:
            found = [
                self._consumer.list_topics(topic, timeout=_PROBE_TIMEOUT_S) for topic in self._config.topics
            ]
        except KafkaException as exc:
            self.trouble = self._last_error or self._because(exc.args[0])
        else:
            self._last_error = None
            self._note_topics(found)
        self._probed_s = time.monotonic()

    def _note_topics(self, found: Iterable[Any]) -> None:
        troubles = []
        for topic in (each for metadata in found for each in metadata.topics.values()):
            if topic.error is not None:
                troubles.append(_of_topic(topic.topic, topic.error))
            else:
                self.partitions[topic.topic] = len(topic.partitions)
        self.trouble = "; ".join(troubles) or self._group_trouble

    def _find_starts(self) -> None:
        """Read up to where the group has read the partitions that were assigned: the lag begins there."""
        if not self._without_start:
            return
        places = [TopicPartition(*place) for place in self._without_start]
        self._without_start = set()
        try:
            found = self._consumer.committed(places, timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException:
            return  # it is known after the next commit
        for each in found:
            if each.offset >= 0:
                self._committed.setdefault((each.topic, each.partition), each.offset)

    def _is_error(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        code = error.code()
        if code in _OF_GROUP:
            self._group_trouble = f"group {self._config.group!r}: {text_of(error)}"
            self.trouble = self._group_trouble
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            self.trouble = _of_topic(message.topic() or ", ".join(self._config.topics), error)
        else:
            self._note_error(error)
        return True

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == _FATAL:
            self._ended = text_of(error)
        elif error.code() == _ALL_BROKERS_DOWN:
            self.trouble = self._last_error or text_of(error)
        else:
            self._last_error = self._because(error)
            if error.code() in _OF_CONNECTION:
                self.trouble = self._last_error

    def _because(self, error: KafkaError) -> str:
        if error.code() == _AUTHENTICATION:
            return f"{_REFUSED} in `receive.kafka.options`: {text_of(error)}"
        if self._last_error and self._last_error.startswith(_REFUSED):
            return self._last_error  # that its connections end says less
        return text_of(error)

    def _note_assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._owned.update((each.topic, each.partition) for each in places)
        self.assigned.update((each.topic, each.partition) for each in places)
        self._without_start.update((each.topic, each.partition) for each in places)
        self._paused.difference_update((each.topic, each.partition) for each in places)
        self._unsure.update((each.topic, each.partition) for each in places)
        self._group_trouble = None

    def _note_revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        for place in ((each.topic, each.partition) for each in places):
            self._owned.discard(place)
            self._requested.pop(place, None)
            self._committed.pop(place, None)
            self._without_start.discard(place)

    def _note_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        for each in places:
            place = (each.topic, each.partition)
            if error is not None or each.error is not None:
                self._forget_requests([place])
            elif place in self._owned:
                self._committed[place] = each.offset

    def _forget_requests(self, places: Iterable[Partition]) -> None:
        for place in places:
            self._requested.pop(place, None)


def _consumer_settings(config: KafkaConfig, **callbacks: Callable[..., None]) -> dict[str, Any]:
    return {
        "group.id": config.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "partition.assignment.strategy": "cooperative-sticky",
        "queued.max.messages.kbytes": _QUEUED_KILOBYTES,
        **callbacks,
        **config.client_settings(),
    }


def _message_of(message: Message) -> TopicMessage:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return TopicMessage(
        topic=topic,
        partition=partition,
        offset=offset,
        key=bytes_of(message.key()),
        value=bytes_of(message.value()),
        headers=tuple((name, bytes_of(value) or b"") for name, value in headers),
    )


def _of_topic(topic: str, error: KafkaError) -> str:
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return f"topic {topic!r} does not exist: it is waited for"
    return f"topic {topic!r}: {text_of(error)}"


_OPEN: Final = {"security.protocol", "sasl.mechanism", "sasl.mechanisms", "ssl.ca.location"}
"""Options whose values are no secrets, and may be parts of messages."""


def _without_secrets(text: str, config: KafkaConfig) -> str:
    secrets = [value.get_secret_value() for name, value in config.options.items() if name not in _OPEN]
    for secret in filter(None, secrets):
        text = text.replace(secret, "…")
    return text
