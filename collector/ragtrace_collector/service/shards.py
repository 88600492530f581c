"""The shards of a process: a pipeline over the store of each partition that the consumer group gives it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from ragtrace.answers.port import AnswerIndex
from ragtrace.budget import SpendLedger
from ragtrace.drift.runs import DriftState
from ragtrace.errors import RagtraceError, ReadUnavailable
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.judge.live import Live, LiveConfig, SharedEvaluator
from ragtrace_collector.receive.intake import SpanIntake
from ragtrace_collector.receive.kafka import Destination, KafkaReceiver
from ragtrace_collector.service.cluster import AllowanceShares, ClusterConnection
from ragtrace_collector.service.from_config import sampler_of
from ragtrace_collector.service.pipeline import StorePipeline
from ragtrace_collector.stage import first_of
from ragtrace_collector.store.merged import MergedStores
from ragtrace_collector.store.open import OwnedStore
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.store.shard import Shard, shard_of
from ragtrace_collector.telemetry.logs import event, place_of

log = logging.getLogger("ragtrace.collector")

_GRACE_S: Final = 3.0
"""How long the next owner of a shard waits for answers that are being judged."""
_LAST_TURN_S: Final = 1.0
_OPEN_AGAIN_S: Final = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class _OwnedShard:
    """A shard that the group gave to this process, until it is given up."""

    shard: Shard
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    is_lost: bool = False
    """Whether another process has it already."""
    store: OwnedStore | None = None
    pipeline: StorePipeline | None = None
    """``None`` while its store is opened or closed."""
    trouble: str | None = "its state is being read"
    """Why it takes no messages."""
    kept: asyncio.Task[None] | None = None

    def tell(self, trouble: str) -> None:
        """Note why it takes no messages, and log that once."""
        if trouble != self.trouble:
            log.warning(
                "shard %d is not open, and is opened again: %s",
                self.shard.number,
                trouble,
                extra=event("shard_unavailable", shard=str(self.shard.number)),
            )
        self.trouble = trouble


class ShardReports(MergedStores):
    """What the pages read of the shards of this process."""

    def __init__(self, host: ShardHost) -> None:
        super().__init__(host.stores, shard_of=host.shard_of)
        self._host = host

    async def check(self) -> None:
        """Return if spans are accepted now.

        Raises:
            StoreUnavailable: the brokers do not answer, the topics are not as they must be, or the disk of a
                shard is full or fails.
        """
        if (trouble := self._host.trouble()) is not None:
            raise StoreUnavailable(trouble)
        await super().check()


@dataclass(slots=True, kw_only=True)
class ShardHost:
    """Opens, runs and closes shards as partitions come and go. This is `Work`, and `Destinations`."""

    configuration: LiveConfig
    connection: ClusterConnection
    intake: SpanIntake
    spend_ledger: SpendLedger
    open_store: Callable[[Shard, bool], Awaitable[OwnedStore]]
    """Gets whether a former owner may have crashed, so that its answers are suspect."""
    open_pipeline: Callable[[OwnedStore, LiveConfig, Shard], Awaitable[StorePipeline]]
    receiver: KafkaReceiver | None = None
    """Reads the partitions of this member; ``None`` in a process that takes spans only."""
    allowances: AllowanceShares | None = None
    """Those of senders; ``None`` in a process that takes no spans over OTLP."""
    reports: ShardReports = field(init=False)
    _owned: dict[int, _OwnedShard] = field(default_factory=dict)
    _lost: set[int] = field(default_factory=set)
    """Shards whose logs this process lost since it opened them: nothing crashed."""
    _tasks: asyncio.TaskGroup | None = None

    def __post_init__(self) -> None:
        self.reports = ShardReports(self)

    @property
    def answers(self) -> AnswerIndex:
        """The index of the answers in the shards of this process."""
        return self.reports.answers

    def stores(self) -> Mapping[int, OwnedStore]:
        """Return the stores of the shards that are open, by number."""
        return {
            number: owned.store
            for number, owned in sorted(self._owned.items())
            if owned.pipeline is not None and owned.store is not None
        }

    def shard_of(self, trace_id: str) -> int:
        """Return the number of the shard that decides about a trace."""
        return shard_of(trace_id, self.connection.shards or 1)

    def trouble(self) -> str | None:
        """Return why spans are not accepted, or not read."""
        troubles = (
            f"shard {number}: {owned.trouble}" for number, owned in self._owned.items() if owned.trouble
        )
        of_allowances = self.allowances.trouble if self.allowances else None
        return self.connection.trouble or of_allowances or next(troubles, None)

    async def prepare(self, config: CollectorConfig, evaluator: SharedEvaluator) -> Callable[[], None]:
        """Get ready to follow another configuration. This is `Work.prepare`."""
        mine = Live.of(config, evaluator, sampler_of(config.sample))
        following = [await pipeline.prepare(config, evaluator) for pipeline in self._pipelines()]

        def follow() -> None:
            self.configuration.exchange(mine)
            for each in following:
                each()

        return follow

    async def run(self, stop: asyncio.Event) -> None:
        """Read what the group gives to this member, until ``stop`` is set."""
        async with self.connection.connected(), asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if self.allowances is not None:
                tasks.create_task(self.allowances.keep(stop), name="allowances")
            await first_of(self.connection.known, stop)
            if self.receiver is not None and self.connection.known.is_set():
                self.receiver.start(tasks)
            await stop.wait()
            for owned in self._owned.values():
                owned.given_up.set()

    async def drain(self) -> None:
        """Give all shards back. What is queued, the next owner judges."""
        if self.receiver is not None:
            await self.receiver.stop()
        await self.revoked(list(self._owned), is_lost=False)

    async def left(self) -> dict[str, int]:
        """Return nothing: what is not finished is in Kafka."""
        return {}

    async def drift_state(self) -> DriftState:
        """Return whether the judge is steady, if the first shard is here."""
        first = self._first()
        return await first.drift_state() if first else DriftState()

    def of(self, partition: int) -> Destination | None:
        """Return the intake of an open shard. This is `Destinations.of`."""
        owned = self._owned.get(partition)
        pipeline = owned.pipeline if owned else None
        if pipeline is None:
            return None
        return Destination(intake=pipeline.intake, store=pipeline.store, mail=pipeline.store)

    def assigned(self, partitions: Collection[int]) -> None:
        """Begin to open shards. This is `Destinations.assigned`."""
        assert self._tasks is not None
        for number in partitions:
            if number in self._owned:
                continue
            assert self.connection.shards is not None
            owned = _OwnedShard(shard=Shard(number, self.connection.shards))
            self._owned[number] = owned
            owned.kept = self._tasks.create_task(self._keep(owned), name=f"shard-{number}")

    async def revoked(self, partitions: Collection[int], *, is_lost: bool) -> None:
        """Close shards. This is `Destinations.revoked`."""
        gone = [self._owned.pop(number) for number in partitions if number in self._owned]
        for owned in gone:
            owned.is_lost = is_lost
            owned.given_up.set()
        if kept := [owned.kept for owned in gone if owned.kept]:
            await asyncio.wait(kept)

    def _pipelines(self) -> list[StorePipeline]:
        return [owned.pipeline for owned in self._owned.values() if owned.pipeline is not None]

    def _first(self) -> StorePipeline | None:
        return next((pipeline for pipeline in self._pipelines() if pipeline.shard.is_first), None)

    async def _keep(self, owned: _OwnedShard) -> None:
        """Run a shard until it is given up. If its log is lost, open it again: the last to do so has it."""
        while not owned.given_up.is_set():
            try:
                if owned.shard.number in self._lost:
                    with suppress(ReadUnavailable):  # its log may answer all the same, or says why not
                        await self.connection.check_alone()
                async with self._opened(owned):
                    await self._until_over(owned)
            except Exception as exc:  # noqa: BLE001 -- one shard must not end the others
                known = isinstance(exc, RagtraceError)
                owned.tell(str(exc) if known else f"it failed unexpectedly: {place_of(exc)}")
                await first_of(owned.given_up, timeout_s=_OPEN_AGAIN_S)

    @asynccontextmanager
    async def _opened(self, owned: _OwnedShard) -> AsyncIterator[None]:
        number = owned.shard.number
        store = await self.open_store(owned.shard, number not in self._lost)
        self._lost.discard(number)
        try:
            mine = self.configuration.now
            sampler = sampler_of(mine.config.sample, owned.shard)
            live = LiveConfig(Live.of(mine.config, mine.shared_evaluator, sampler))
            pipeline = await self.open_pipeline(store, live, owned.shard)
            await pipeline.recover()
            owned.store, owned.pipeline, owned.trouble = store, pipeline, None
            log.info("shard %d is open", number, extra=event("shard_opened", shard=str(number)))
            yield
        finally:
            owned.store = owned.pipeline = None
            await store.aclose()
            log.info("shard %d is closed", number, extra=event("shard_closed", shard=str(number)))

    async def _until_over(self, owned: _OwnedShard) -> None:
        """Run the stages of an open shard until it is given up or lost."""
        pipeline, store, stop = owned.pipeline, owned.store, asyncio.Event()
        assert pipeline is not None
        assert store is not None
        stages = asyncio.create_task(pipeline.run(stop), name=f"stages-{owned.shard.number}")
        ended = asyncio.Event()
        stages.add_done_callback(lambda _: ended.set())
        try:
            await first_of(owned.given_up, store.lost, ended)
            if ended.is_set():
                stages.result()  # raises: by themselves they never end
            is_over = store.lost.is_set() or owned.is_lost
            owned.pipeline = None  # no more messages come
            if is_over:
                self._lost.add(owned.shard.number)
                log.warning(
                    "shard %d has another owner now, or its log does not answer",
                    owned.shard.number,
                    extra=event("shard_lost", shard=str(owned.shard.number)),
                )
            else:
                await pipeline.intake.finish()
                stop.set()
                await asyncio.wait([stages], timeout=_GRACE_S)
        finally:
            stages.cancel()
            await asyncio.wait([stages])
