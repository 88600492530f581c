"""Who is in a consumer group. Everything here blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.kafka.admin import Admin

_ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a consumer group."""

    id: str
    """As the brokers name it."""
    topics: frozenset[str]
    """Those of which it has partitions now."""


class GroupAdmin:
    """Asks for the members of a group."""

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        """Connect when it is used."""
        self._group = group
        self._admin = Admin(settings)

    def members(self) -> Sequence[GroupMember]:
        """Return the members.

        Raises:
            ReadUnavailable: the brokers do not answer, or refuse.
        """
        asked = self._admin.describe_consumer_groups([self._group], request_timeout=_ANSWER_S)
        try:
            found = asked[self._group].result().members
        except KafkaException as exc:
            if exc.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise ReadUnavailable(f"the brokers {self._admin.reason(exc)}") from exc
        return [
            GroupMember(
                id=member.member_id,
                topics=frozenset(place.topic for place in member.assignment.topic_partitions),
            )
            for member in found
        ]
