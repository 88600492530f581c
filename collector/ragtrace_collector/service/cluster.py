"""A process of a cluster: what it needs of Kafka before it knows its shards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from ragtrace.errors import ConfigError, ReadUnavailable
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.kafka.groups import GroupAdmin
from ragtrace_collector.kafka.topics import TopicAdmin
from ragtrace_collector.receive.kafka_group import IngestGroup
from ragtrace_collector.receive.kafka_producers import SpanProducer
from ragtrace_collector.receive.kafka_topics import DEAD_LETTERS, cluster_topics
from ragtrace_collector.stage import first_of
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.web.tokens import TokenAuth

log = logging.getLogger("ragtrace.collector")

_ASK_AGAIN_S: Final = 2.0
_COUNT_AGAIN_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class ClusterConnection:
    """Finds out how many shards there are, and writes spans into their partitions."""

    config: KafkaStoreConfig
    max_message_bytes: int
    """The largest request; so large a message of the topics may be, with what comes around it."""
    group: GroupAdmin | None = None
    """The members that read the same topic; ``None`` in a process that reads none."""
    shards: int | None = None
    """``None`` until the brokers have said it."""
    producer: SpanProducer | None = None
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when they have."""
    trouble: str | None = "no broker has answered yet"
    """Why nothing can be written or read."""

    async def connect(self) -> None:
        """Ask the brokers once.

        Raises:
            ConfigError: the topics are not as they must be.
        """
        try:
            shards = await asyncio.to_thread(shards_of, self.config, max_message_bytes=self.max_message_bytes)
            await self.check_alone()
        except ReadUnavailable as exc:
            self.trouble = str(exc)
            return
        self.shards = shards
        self.producer = SpanProducer(self.config, shards=shards)
        self.trouble = None
        self.known.set()

    async def check_alone(self) -> None:
        """See that no other cluster has the same prefix: both would take the shards from each other.

        Raises:
            ConfigError: members of the group read another topic of spans.
            ReadUnavailable: the brokers do not answer.
        """
        if self.group is None:
            return
        members = await asyncio.to_thread(self.group.members)
        others = sorted(frozenset().union(*(member.topics for member in members)) - {self.config.spans})
        if others:
            raise ConfigError(
                f"`store.kafka.prefix`: members of group {self.config.prefix!r} read {', '.join(others)} and "
                f"not {self.config.spans}: other collectors use this group, so choose another prefix; if "
                "they are the same cluster, stop all its processes before its topic of spans changes"
            )

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


@dataclass(slots=True, kw_only=True)
class AllowanceShares:
    """Divides the allowances of tokens equally among the processes that ingest."""

    group: IngestGroup
    access: TokenAuth

    def __post_init__(self) -> None:
        self.access.processes = None

    @property
    def trouble(self) -> str | None:
        """Why senders with an allowance are told to wait."""
        if not self.access.has_allowances or self.access.processes is not None:
            return None
        return f"how many processes share the tokens' limits is not known: {self.group.trouble}"

    async def keep(self, stop: asyncio.Event) -> None:
        """Count the processes once a second until ``stop`` is set, unless no token has an allowance."""
        while not stop.is_set():
            if self.access.has_allowances:
                await self._count()
            await first_of(stop, timeout_s=_COUNT_AGAIN_S)
        await asyncio.to_thread(self.group.close)

    async def _count(self) -> None:
        """Count them. While the brokers do not answer the last count holds: nothing is taken anyway."""
        known, trouble = self.access.processes, self.trouble
        self.access.processes = await asyncio.to_thread(self.group.members) or known
        if self.access.processes != known:
            told = event("allowances_shared", processes=str(self.access.processes))
            log.info("processes that share the limits of tokens: %d", self.access.processes, extra=told)
        elif self.trouble is not None and self.trouble != trouble:
            log.warning("%s", self.trouble, extra=event("allowances_unknown"))


def shards_of(config: KafkaStoreConfig, *, max_message_bytes: int) -> int:
    """Return how many shards a cluster has. Blocks.

    Raises:
        ConfigError: the topics are not as they must be.
        ReadUnavailable: the brokers do not answer, or a topic is missing.
    """
    wanted = cluster_topics(
        config, partitions=None, retention=_SHORTEST_RETENTION, max_message_bytes=max_message_bytes
    )
    needed = [each for each in wanted if each.purpose != DEAD_LETTERS]
    states = TopicAdmin(config.client_settings(), needed, timeout_s=_ANSWER_S).states()
    missing = ", ".join(repr(state.name) for state in states if not state.exists)
    if missing:
        raise ReadUnavailable(f"there is no topic {missing}: `ragtrace kafka topics --apply` makes it")
    faults = [f"  {state.name}: {fault}" for state in states for fault in state.faults]
    if faults:
        raise ConfigError(
            "`store.kafka`: topics are not as they must be (`ragtrace kafka topics --apply` sets settings):\n"
            + "\n".join(faults)
        )
    return states[0].partitions


_ANSWER_S: Final = 5.0
_SHORTEST_RETENTION: Final = timedelta(days=1)
