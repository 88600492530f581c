"""The topics that the receiver needs: whether they are there, and are kept as it needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.config.kafka import KafkaConfig
from ragtrace_collector.receive.kafka_client import reason_of

_TIMEOUT_S: Final = 20.0
_CLEANUP: Final = "cleanup.policy"
_RETENTION: Final = "retention.ms"
_FOREVER: Final = -1
_BY_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """How topics are to be."""

    partitions: int = 1
    """Of topics of spans; dead letters have one partition."""
    replication: int | None = None
    """Copies of a topic that is created; ``None`` for the brokers' default."""
    retention: timedelta = timedelta(days=7)
    """At least so long messages stay."""

    @property
    def retention_ms(self) -> int:
        """The retention as the brokers write it."""
        return int(self.retention.total_seconds() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """How a topic is, and what is wrong with it."""

    name: str
    purpose: str
    """``spans`` or ``dead letters``."""
    partitions: int = 0
    """None if it does not exist."""
    cleanup: str = ""
    retention_ms: int = _FOREVER
    plan: TopicPlan

    @property
    def exists(self) -> bool:
        """Whether there is such a topic."""
        return self.partitions > 0

    @property
    def faults(self) -> Sequence[str]:
        """What is wrong, a sentence each."""
        return tuple(self._faults()) if self.exists else ("it does not exist",)

    @property
    def wrong_settings(self) -> dict[str, str]:
        """The settings that are wrong, as they should be."""
        found = {}
        if "compact" in self.cleanup:
            found[_CLEANUP] = "delete"
        if _FOREVER < self.retention_ms < self.plan.retention_ms:
            found[_RETENTION] = str(self.plan.retention_ms)
        return found

    def _faults(self) -> Iterator[str]:
        if _CLEANUP in self.wrong_settings:
            yield f"`{_CLEANUP}` is {self.cleanup}: of messages with one key, only the last would stay"
        if _RETENTION in self.wrong_settings:
            yield f"`{_RETENTION}` is {self.retention_ms}: less than {self.plan.retention_ms}"
        if self.purpose == "spans" and self.partitions < self.plan.partitions:
            yield (
                f"it has fewer than {self.plan.partitions} partitions: add them while nothing is written, "
                "because keys move then"
            )


class TopicAdmin:
    """Reads and makes the topics of a configuration. Every method blocks.

    Its methods raise ReadUnavailable if the brokers do not answer or refuse.
    """

    def __init__(self, config: KafkaConfig, plan: TopicPlan) -> None:
        self._config = config
        self._plan = plan
        self._admin = AdminClient(config.client_settings())

    def states(self) -> Sequence[TopicState]:
        """Return how the topics are: those with spans, then those of dead letters."""
        return [self._state(name, purpose) for name, purpose in self._wanted().items()]

    def apply(self) -> Sequence[TopicState]:
        """Create what is missing, set what is wrong, and return how the topics are then.

        The number of partitions of a topic that exists is left as it is.
        """
        for state in self.states():
            if not state.exists:
                self._create(state)
            elif state.wrong_settings:
                self._set(state)
        return self.states()

    def _wanted(self) -> dict[str, str]:
        dead = (self._config.dead_letter_topic(topic) for topic in self._config.topics)
        return {
            **dict.fromkeys(self._config.topics, "spans"),
            **dict.fromkeys((topic for topic in dead if topic), "dead letters"),
        }

    def _state(self, name: str, purpose: str) -> TopicState:
        try:
            found = self._admin.list_topics(name, timeout=_TIMEOUT_S).topics[name]
        except KafkaException as exc:
            raise ReadUnavailable(f"the brokers do not answer: {reason_of(exc)}") from exc
        if found.error is not None or not found.partitions:
            return TopicState(name=name, purpose=purpose, plan=self._plan)
        resource = ConfigResource(ResourceType.TOPIC, name)
        (settings,) = [self._result(each) for each in self._admin.describe_configs([resource]).values()]
        return TopicState(
            name=name,
            purpose=purpose,
            partitions=len(found.partitions),
            cleanup=str(settings[_CLEANUP].value),
            retention_ms=int(settings[_RETENTION].value),
            plan=self._plan,
        )

    def _create(self, state: TopicState) -> None:
        new = NewTopic(
            state.name,
            num_partitions=self._plan.partitions if state.purpose == "spans" else 1,
            replication_factor=self._plan.replication or _BY_DEFAULT,
            config={_CLEANUP: "delete", _RETENTION: str(self._plan.retention_ms)},
        )
        for created in self._admin.create_topics([new]).values():
            self._result(created)

    def _set(self, state: TopicState) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in state.wrong_settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, state.name, incremental_configs=entries)
        for changed in self._admin.incremental_alter_configs([resource]).values():
            self._result(changed)

    def _result(self, asked: Future[Any]) -> Any:
        try:
            return asked.result(_TIMEOUT_S)
        except KafkaException as exc:
            raise ReadUnavailable(f"the brokers refuse: {reason_of(exc)}") from exc
