"""How many processes of a cluster ingest: each is a member of a consumer group in which nothing is read."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException

from ragtrace.errors import ReadUnavailable
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.kafka.groups import GroupAdmin
from ragtrace_collector.receive.kafka_client import (
    AssignmentListener,
    ClientEnded,
    GroupConsumer,
    reason_of,
)


class IngestGroup:
    """This process's place among those that ingest. Every method blocks; one thread calls them at a time.

    The brokers keep the list of members: who dies leaves it after `session_timeout`.
    """

    def __init__(self, config: KafkaStoreConfig) -> None:
        self.trouble: str | None = "no broker has answered yet"
        """Why the members are not known."""
        self._config = config.ingest_group()
        self._consumer: GroupConsumer | None = None
        self._admin = GroupAdmin(config.client_settings(), self._config.group)

    def members(self) -> int | None:
        """Stay a member, and return how many there are; ``None`` if that is not known now."""
        try:
            consumer = self._polled()
            ids = [member.id for member in self._admin.members()]
        except (ClientEnded, KafkaException) as exc:
            self.close()  # a new client joins with the next call
            self.trouble = reason_of(exc)
        except ReadUnavailable as exc:
            self.trouble = str(exc)
        else:
            if consumer.member_id in ids:
                self.trouble = None
                return len(ids)
            self.trouble = consumer.trouble or f"this process has not joined {self._config.group!r} yet"
        return None

    def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _polled(self) -> GroupConsumer:
        if self._consumer is None:
            self._consumer = GroupConsumer(self._config, _NOTHING_TO_DO)
        self._consumer.poll(1, 0)
        self._consumer.pause([(topic, 0) for topic in self._config.topics])
        return self._consumer


_NOTHING_TO_DO: Final = AssignmentListener(assigned=lambda _: None, revoked=lambda _, __: None)
