"""Topics: whether they are as they must be, and how to make them so. Nothing is deleted or made smaller."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.kafka.admin import Admin

_TIMEOUT_S: Final = 20.0
_MORE_S: Final = 5.0
"""The client says by itself when the time is over."""
_CLEANUP: Final = "cleanup.policy"
_RETENTION: Final = "retention.ms"
_POLL_S: Final = 0.05
_UNLIMITED: Final = -1
_BY_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """How a topic must be. It deletes what is old."""

    name: str
    purpose: str
    """What it holds, for people: ``spans``."""
    partitions: int
    """At least so many."""
    retention: timedelta
    """At least so long messages stay."""

    @property
    def settings(self) -> dict[str, str]:
        """Its settings, as it is created."""
        return {_CLEANUP: "delete", _RETENTION: str(int(self.retention.total_seconds() * 1000))}

    def wrong_settings(self, found: Mapping[str, str]) -> dict[str, str]:
        """Return the settings that are wrong, as they must be."""
        return {
            name: value for name, value in self.settings.items() if not _is_fine(name, found.get(name), value)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """How a topic is, and what is wrong with it."""

    wanted: WantedTopic
    partitions: int = 0
    """None if it does not exist."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those that are wanted, as they are."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.wanted.name

    @property
    def purpose(self) -> str:
        """What it holds."""
        return self.wanted.purpose

    @property
    def exists(self) -> bool:
        """Whether there is such a topic."""
        return self.partitions > 0

    @property
    def wrong_settings(self) -> dict[str, str]:
        """The settings that are wrong, as they must be."""
        return self.wanted.wrong_settings(self.settings)

    @property
    def faults(self) -> Sequence[str]:
        """What is wrong and what to do, a sentence each."""
        if not self.exists:
            return ("it does not exist",)
        return (*self._faults_of_settings(), *self._faults_of_partitions())

    def _faults_of_settings(self) -> Iterator[str]:
        for name, value in self.wrong_settings.items():
            found = self.settings.get(name, "not known")
            if name == _CLEANUP:
                yield f"`{name}` is {found}: of messages with one key, only the last would stay"
            else:
                yield f"`{name}` is {found}: less than {value}"

    def _faults_of_partitions(self) -> Iterator[str]:
        if self.partitions < self.wanted.partitions:
            yield (
                f"it has fewer than {self.wanted.partitions} partitions: add them while nothing is written, "
                "because keys move then"
            )


class TopicAdmin:
    """Reads and makes topics. Every method blocks.

    Its methods raise ReadUnavailable if the brokers do not answer or refuse.
    """

    def __init__(self, settings: Mapping[str, Any], wanted: Sequence[WantedTopic]) -> None:
        self._wanted = wanted
        self._admin = Admin(settings)

    def states(self) -> Sequence[TopicState]:
        """Return how the topics are, in the order of those that are wanted."""
        counts = self._partitions()
        settings = self._settings([name for name, count in counts.items() if count])
        return [
            TopicState(
                wanted=each,
                partitions=counts[each.name],
                settings=settings.get(each.name, {}),
            )
            for each in self._wanted
        ]

    def apply(self, *, replication: int | None = None) -> Sequence[TopicState]:
        """Create what is missing, set what is wrong, and return how the topics are then.

        The number of partitions of a topic that exists is left as it is.

        Args:
            replication: Copies of a topic that is created; ``None`` for the brokers' default.
        """
        for state in self.states():
            if not state.exists:
                self._create(state, replication)
            elif state.wrong_settings:
                self._set(state)
        return self.states()

    def _partitions(self) -> dict[str, int]:
        """Return how many partitions each topic has. This does not let brokers create one."""
        names = dict.fromkeys(each.name for each in self._wanted)
        found = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=_TIMEOUT_S)
        return {name: self._count(asked) for name, asked in found.items()}

    def _count(self, asked: Future[Any]) -> int:
        try:
            return len(self._result(asked).partitions)
        except ReadUnavailable as exc:
            if _code_of(exc) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise

    def _settings(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found = self._admin.describe_configs(resources, request_timeout=_TIMEOUT_S)
        return {
            resource.name: {name: str(entry.value) for name, entry in self._result(asked).items()}
            for resource, asked in found.items()
        }

    def _create(self, state: TopicState, replication: int | None) -> None:
        new = NewTopic(
            state.name,
            num_partitions=state.wanted.partitions,
            replication_factor=replication or _BY_DEFAULT,
            config=state.wanted.settings,
        )
        for created in self._admin.create_topics([new]).values():
            try:
                self._result(created)
            except ReadUnavailable as exc:
                if _code_of(exc) != KafkaError.TOPIC_ALREADY_EXISTS:  # two collectors may start at once
                    raise
        self._await(state.name)

    def _await(self, name: str) -> None:
        """Wait until a broker knows a new topic: the controller says earlier that it is there."""
        end_s = time.monotonic() + _TIMEOUT_S
        while not self._partitions()[name] and time.monotonic() < end_s:
            time.sleep(_POLL_S)

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
            return asked.result(_TIMEOUT_S + _MORE_S)
        except TimeoutError as exc:
            raise ReadUnavailable("the brokers do not answer") from exc
        except KafkaException as exc:
            raise ReadUnavailable(f"the brokers {self._admin.reason(exc)}") from exc


def _is_fine(name: str, found: str | None, wanted: str) -> bool:
    if found is None or name == _CLEANUP:
        return found == wanted
    return int(found) == _UNLIMITED or int(wanted) <= int(found)


def _code_of(exc: ReadUnavailable) -> int | None:
    cause = exc.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None
