"""Topics: whether they are as they must be, and how to make them so. Nothing is deleted or made smaller."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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
_POLL_S: Final = 0.05
_UNLIMITED: Final = -1
_BY_DEFAULT: Final = -1
_AT_LEAST: Final = frozenset({"delete.retention.ms", "max.message.bytes", "retention.bytes", "retention.ms"})
"""Settings of which more is fine. The others must be equal."""
_WRONG_CLEANUP: Final = {
    "delete": "of messages with one key, only the last would stay",
    "compact": "what is old would be deleted, and it must stay until a later message with its key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """How a topic must be."""

    name: str
    purpose: str
    """What it holds, for people: ``spans``."""
    partitions: int | None = None
    """At least so many; ``None`` for any number."""
    if_new: int | None = None
    """With how many it is created, if any number will do; ``None`` for what the brokers take."""
    is_exact: bool = False
    """Not more partitions either."""
    same_as: str | None = None
    """Another topic of those that are checked, with as many partitions."""
    cleanup: Literal["delete", "compact"] = "delete"
    config: Mapping[str, str] = field(default_factory=dict)
    """Further settings. Sizes and times are the least; ``-1`` is unlimited."""

    def wrong_settings(self, found: Mapping[str, str]) -> dict[str, str]:
        """Return the settings that are wrong, as they must be."""
        wanted = {_CLEANUP: self.cleanup, **self.config}
        return {name: value for name, value in wanted.items() if not _is_fine(name, found.get(name), value)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """How a topic is, and what is wrong with it."""

    wanted: WantedTopic
    partitions: int = 0
    """None if it does not exist."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those that are wanted, as they are."""
    partitions_of_other: int = 0
    """Of the topic that must have as many."""

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

    @property
    def new_partitions(self) -> int:
        """With how many partitions it is to be created."""
        wanted = self.wanted
        return self.partitions_of_other or wanted.partitions or wanted.if_new or _BY_DEFAULT

    def _faults_of_settings(self) -> Iterator[str]:
        for name, value in self.wrong_settings.items():
            found = self.settings.get(name, "not known")
            if name == _CLEANUP:
                yield f"`{name}` is {found}: {_WRONG_CLEANUP[self.wanted.cleanup]}"
            elif name not in _AT_LEAST:
                yield f"`{name}` is {found}: it must be {value}"
            elif int(value) == _UNLIMITED:
                yield f"`{name}` is {found}: nothing may be deleted by itself, so it must be {value}"
            else:
                yield f"`{name}` is {found}: less than {value}"

    def _faults_of_partitions(self) -> Iterator[str]:
        wanted = self.wanted
        if wanted.partitions is not None and self.partitions < wanted.partitions:
            yield (
                f"it has fewer than {wanted.partitions} partitions: add them while nothing is written, "
                "because keys move then"
            )
        elif wanted.is_exact and self.partitions != wanted.partitions:
            yield (
                f"it has {self.partitions} partitions and must have {wanted.partitions}: partitions cannot "
                "be removed, so choose another name, or delete it if nothing in it is needed"
            )
        if self.partitions_of_other and self.partitions != self.partitions_of_other:
            yield (
                f"it has {self.partitions} partitions and {wanted.same_as} has {self.partitions_of_other}: "
                "add partitions to the one with fewer, while nothing is written"
            )


class TopicAdmin:
    """Reads and makes topics. Every method blocks.

    Its methods raise ReadUnavailable if the brokers do not answer or refuse.
    """

    def __init__(
        self, settings: Mapping[str, Any], wanted: Sequence[WantedTopic], *, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._wanted = wanted
        self._timeout_s = timeout_s
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
                partitions_of_other=counts.get(each.same_as, 0) if each.same_as else 0,
            )
            for each in self._wanted
        ]

    def apply(self, *, replication: int | None = None) -> Sequence[TopicState]:
        """Create what is missing, set what is wrong, and return how the topics are then.

        The number of partitions of a topic that exists is left as it is.

        Args:
            replication: Copies of a topic that is created; ``None`` for the brokers' default.
        """
        for wanted in self._wanted:  # one by one: one may need as many partitions as one before it
            (state,) = (each for each in self.states() if each.name == wanted.name)
            if not state.exists:
                self._create(state, replication)
            elif state.wrong_settings:
                self._set(state)
        return self.states()

    def _partitions(self) -> dict[str, int]:
        """Return how many partitions each topic has. This does not let brokers create one."""
        names = dict.fromkeys(each.name for each in self._wanted)
        found = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout_s)
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
        found = self._admin.describe_configs(resources, request_timeout=self._timeout_s)
        return {
            resource.name: {name: str(entry.value) for name, entry in self._result(asked).items()}
            for resource, asked in found.items()
        }

    def _create(self, state: TopicState, replication: int | None) -> None:
        new = NewTopic(
            state.name,
            num_partitions=state.new_partitions,
            replication_factor=replication or _BY_DEFAULT,
            config={_CLEANUP: state.wanted.cleanup, **state.wanted.config},
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
        end_s = time.monotonic() + self._timeout_s
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
            return asked.result(self._timeout_s + _MORE_S)
        except TimeoutError as exc:
            raise ReadUnavailable("the brokers do not answer") from exc
        except KafkaException as exc:
            raise ReadUnavailable(f"the brokers {self._admin.reason(exc)}") from exc


def _is_fine(name: str, found: str | None, wanted: str) -> bool:
    if found is None or name not in _AT_LEAST:
        return found == wanted
    return int(found) == _UNLIMITED or _UNLIMITED < int(wanted) <= int(found)


def _code_of(exc: ReadUnavailable) -> int | None:
    cause = exc.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None
