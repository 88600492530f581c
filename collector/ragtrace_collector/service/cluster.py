"""A process of a cluster: what it needs of Kafka before it knows its shards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ragtrace.errors import ConfigError, ReadUnavailable
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.receive.kafka_client import reason_of
from ragtrace_collector.receive.kafka_producers import SpanProducer
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_ASK_AGAIN_S: Final = 2.0


@dataclass(slots=True, kw_only=True)
class ClusterConnection:
    """Finds out how many shards there are, and writes spans into their partitions."""

    config: KafkaStoreConfig
    shards: int | None = None
    """``None`` until the brokers have said it."""
    producer: SpanProducer | None = None
    trouble: str | None = "no broker has answered yet"
    """Why nothing can be written or read."""

    async def connect(self) -> None:
        """Ask the brokers once.

        Raises:
            ConfigError: the topics are not as they must be.
        """
        try:
            self.shards = await asyncio.to_thread(shards_of, self.config)
        except ReadUnavailable as exc:
            self.trouble = str(exc)
            return
        self.producer = SpanProducer(self.config, shards=self.shards)
        self.trouble = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Ask until the brokers answer; in the end, wait for what is being written."""
        asking = asyncio.create_task(self._ask())
        try:
            yield
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
            if self.producer is not None:
                await asyncio.to_thread(self.producer.close)

    async def _ask(self) -> None:
        told = None
        while self.shards is None:
            if self.trouble != told:
                log.warning("nothing is written to Kafka: %s", self.trouble, extra=event("kafka_unavailable"))
                told = self.trouble
            await asyncio.sleep(_ASK_AGAIN_S)
            try:
                await self.connect()
            except ConfigError as exc:
                self.trouble = str(exc)


def shards_of(config: KafkaStoreConfig) -> int:
    """Return how many partitions the topics of a cluster have. Blocks.

    Raises:
        ConfigError: the topics of spans and of state have not the same number.
        ReadUnavailable: the brokers do not answer, or a topic is missing.
    """
    admin = AdminClient(config.client_settings())
    found = {topic: _partitions(admin, topic) for topic in (config.spans, config.state, config.budget)}
    missing = [repr(topic) for topic, number in found.items() if not number]
    if missing:
        raise ReadUnavailable(
            f"there is no topic {', '.join(missing)}: `ragtrace kafka topics --apply` makes it"
        )
    if found[config.spans] != found[config.state]:
        raise ConfigError(
            f"`store.kafka`: {config.spans!r} has {found[config.spans]} partitions and {config.state!r} "
            f"has {found[config.state]}: they must have the same number, a shard each"
        )
    return found[config.state]


def _partitions(admin: AdminClient, topic: str) -> int:
    try:
        return len(admin.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions)
    except KafkaException as exc:
        raise ReadUnavailable(f"the brokers do not answer: {reason_of(exc)}") from exc


_ANSWER_S: Final = 5.0
