"""Kafka: the texts of its errors, why brokers do not answer, and whether topics are as they must be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ragtrace.errors import ReadUnavailable

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
