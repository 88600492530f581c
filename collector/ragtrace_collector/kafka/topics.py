"""Whether the topics that a collector reads from and writes to are there, and keep every message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.kafka.admin import Admin

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
