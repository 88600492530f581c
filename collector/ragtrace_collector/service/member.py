"""A process of a cluster, wired: its place among the files, its budget, its topics and its shards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from ragtrace.budget import SpendLedger
from ragtrace.ports import Clock
from ragtrace_collector.assemble.open_traces import Assembly
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.deliver.observed_sink import ObservedSink
from ragtrace_collector.judge.live import LiveConfig
from ragtrace_collector.kafka.groups import GroupAdmin
from ragtrace_collector.receive.kafka import KafkaReceiver, TopicSender
from ragtrace_collector.receive.kafka_client import TopicMessage
from ragtrace_collector.receive.kafka_group import IngestGroup
from ragtrace_collector.receive.kafka_mail import MailSink
from ragtrace_collector.receive.kafka_topics import largest_message
from ragtrace_collector.receive.topic_intake import TENANT_HEADER, TopicIntake
from ragtrace_collector.service.cluster import AllowanceShares, ClusterConnection
from ragtrace_collector.service.from_config import assemble_policy_of, forward_to, release_to
from ragtrace_collector.service.pipeline import StorePipeline
from ragtrace_collector.service.shards import ShardHost
from ragtrace_collector.service.stages import SharedParts, StageParts
from ragtrace_collector.store.open import OwnedStore, open_cluster_budget, open_shard, own_folder
from ragtrace_collector.store.shard import Shard
from ragtrace_collector.telemetry.clock import SteadyClock
from ragtrace_collector.web.auth import ReceiverAuth


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What a process of a cluster opened before it has a judge."""

    config: CollectorConfig
    kafka: KafkaStoreConfig
    auth: ReceiverAuth
    connection: ClusterConnection
    folder: Path
    """Where its copies of shards are."""
    spend_ledger: SpendLedger

    @classmethod
    async def open(cls, config: CollectorConfig, *, auth: ReceiverAuth, stack: AsyncExitStack) -> Member:
        """Ask the brokers for the topics, and open the budget; brokers that are away are waited for.

        Raises:
            ConfigError: the topics are not as they must be, or the folder cannot be used.
        """
        kafka = config.store.kafka
        assert kafka is not None
        connection = ClusterConnection(
            config=kafka,
            max_message_bytes=largest_message(config.receive.max_message_bytes),
            group=GroupAdmin(kafka.client_settings(), kafka.prefix) if config.judges else None,
        )
        await connection.connect()
        return cls(
            config=config,
            kafka=kafka,
            auth=auth,
            connection=connection,
            folder=stack.enter_context(own_folder(config.store.folder)),
            spend_ledger=await stack.enter_async_context(
                open_cluster_budget(config.store, is_reached=connection.shards is not None)
            ),
        )

    def host(
        self, live: LiveConfig, shared: SharedParts, *, clock: Clock, monotonic_ns: Callable[[], int]
    ) -> ShardHost:
        """Wire what opens shards. It opens none yet."""

        mail = ObservedSink(MailSink(lambda: self.connection.producer), shared.tracer)

        async def open_pipeline(store: OwnedStore, live: LiveConfig, shard: Shard) -> StorePipeline:
            policy = assemble_policy_of(live.now.config, shard)
            return StageParts(
                shared=shared,
                live=live,
                store=store,
                shard=shard,
                clock=SteadyClock(clock, not_before_ns=await store.latest_ns()),
                assembly=Assembly(policy, monotonic_ns=monotonic_ns),
                mail=mail,
            ).pipeline()

        host = ShardHost(
            configuration=live,
            connection=self.connection,
            intake=TopicIntake(
                producer=lambda: self.connection.producer,
                live=live,
                counters=shared.counters,
                room=shared.room,
                forwards=bool(forward_to(self.config)),
            ),
            spend_ledger=self.spend_ledger,
            open_store=self._open_store,
            open_pipeline=open_pipeline,
        )
        if self.config.judges:
            host.receiver = self._receiver(host, shared, clock)
        if self.config.has_listeners:
            host.allowances = AllowanceShares(group=IngestGroup(self.kafka), access=self.auth.access)
        return host

    def _receiver(self, host: ShardHost, shared: SharedParts, clock: Clock) -> KafkaReceiver:
        return KafkaReceiver(
            config=self.kafka.receiver(),
            max_message_bytes=self.config.receive.max_message_bytes,
            destinations=host,
            sender=self._sender,
            counters=shared.counters,
            clock=clock,
        )

    def _sender(self, message: TopicMessage) -> TopicSender | None:
        """Return who sent a message: as another member says, or else as for a receiver of topics."""
        headers = dict(message.headers)
        if TENANT_HEADER in headers:
            return TopicSender(headers[TENANT_HEADER].decode(errors="replace") or None)
        return TopicSender(self.kafka.tenant) if self.kafka.tenant or self.auth.access.needs_tokens else None

    async def _open_store(self, shard: Shard, is_crash: bool) -> OwnedStore:
        return await open_shard(
            self.config.store,
            shard,
            folder=self.folder,
            forward_to=release_to(self.config),
            tenants=self.auth.access.tenants,
            is_crash=is_crash,
        )
