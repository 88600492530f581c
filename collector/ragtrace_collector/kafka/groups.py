"""Who is in a consumer group. Everything here blocks."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.kafka.admin import Admin

_ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a consumer group."""

    id: str
    """As the brokers name it."""
    topics: frozenset[str]
    """Those that it reads; none while the group divides partitions anew."""


class GroupAdmin:
    """Asks for the members of a group.

    It asks all brokers and not the group's coordinator, as ``describe_consumer_groups`` does: that ends the
    process with an assertion if a connection breaks meanwhile (librdkafka's issue 4605), and gets no answer
    any more from a broker that was started again.
    """

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        """Connect when it is used."""
        self._settings = settings
        self._group = group
        self._admin = Admin(settings)

    def members(self) -> Sequence[GroupMember]:
        """Return the members.

        Raises:
            ReadUnavailable: the brokers do not answer, or refuse.
        """
        admin = self._admin
        try:
            found: Sequence[Any] = admin.list_groups(self._group, _ANSWER_S)
            if failed := next((group.error for group in found if group.error is not None), None):
                raise KafkaException(failed)
        except KafkaException as exc:
            self._admin = Admin(self._settings)  # it asks those brokers only that are there now
            raise ReadUnavailable(f"the brokers {admin.reason(exc)}") from exc
        return [
            GroupMember(id=member.id, topics=_subscription(member.metadata))
            for group in found
            for member in group.members
        ]


def _subscription(metadata: bytes) -> frozenset[str]:
    """Return the topics that a member told its group, in Kafka's ``ConsumerProtocolSubscription``."""
    try:
        (number,), at = struct.unpack_from(">i", metadata, 2), 6
        topics = []
        for _ in range(number):
            (size,) = struct.unpack_from(">H", metadata, at)
            topics.append(metadata[at + 2 : at + 2 + size].decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError):
        return frozenset()
    return frozenset(topics)
