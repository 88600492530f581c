"""Opens what a configuration names for reading: a file, or copies of all shards of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ragtrace.answers.index.merged import MergedAnswerIndex
from ragtrace.answers.port import AnswerIndex
from ragtrace.budget import SpendLedger, SpendTable
from ragtrace_collector.config import StoreConfig
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.kafka.extra import needs_kafka
from ragtrace_collector.store.budget import SpentRows
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.merged import MergedReader, MergedReports, ShardOf, StoreReports
from ragtrace_collector.store.open import cipher_of
from ragtrace_collector.store.port import StoredContent
from ragtrace_collector.store.reader import StoreReader, index_of, reading
from ragtrace_collector.store.reports import SqliteReports
from ragtrace_collector.store.shard import shard_of
from ragtrace_collector.store.sqlite import open_budget

if TYPE_CHECKING:  # its client is an extra
    from ragtrace_collector.store.replicas import ShardReplicas

FoundT = TypeVar("FoundT")

Files = Callable[[], Mapping[int, Path]]
"""Says which files to read, by the number of their shard: 0 if a file is the store."""


def files_of(config: StoreConfig) -> Files:
    """Return what says which files to read. Each call brings the copies of a cluster up to date, and blocks.

    The copies are in a folder of their own, which all that read on this machine may share. Whether there is a
    store shows when it is read. What is called raises ReadError if the cluster cannot be read, and
    ConfigError if the folder cannot be used.

    Raises:
        ConfigError: the extra `kafka` is not installed.
    """
    if config.kafka is None:
        path = config.file
        return lambda: {0: path}
    return _replicas_of(config.kafka, config.folder).refresh


@contextmanager
def reading_spend(config: StoreConfig) -> Iterator[SpendTable]:
    """Read what was spent, as of one moment.

    Raises:
        ReadError: the store, or the cluster's topic of the budget, cannot be read.
        ConfigError: the extra `kafka` is not installed.
    """
    if config.kafka is None:
        with reading(config.file) as db:
            yield SpentRows(db)
        return
    with needs_kafka("store.kafka"):
        from ragtrace_collector.store.budget_log.kafka import read_budget
        from ragtrace_collector.store.cluster_topics import ClusterTopics
    ClusterTopics(config.kafka).partitions(config.kafka.budget)  # says sooner and more if there is none
    yield read_budget(config.kafka.client_settings(), config.kafka.budget)


@asynccontextmanager
async def open_spend_ledger(config: StoreConfig) -> AsyncIterator[SpendLedger]:
    """Open the budget alone, for another process that spends from it while collectors run.

    Raises:
        ConfigError: the store cannot be used, or the extra `kafka` is not installed.
        ReadUnavailable: the cluster's topic of the budget cannot be used now.
    """
    if config.kafka is None:
        async with open_budget(config.file) as budget:
            yield budget
        return
    with needs_kafka("store.kafka"):
        from ragtrace_collector.store.budget_log.kafka import open_kafka_budget
    settings = config.kafka.client_settings()
    async with open_kafka_budget(settings, config.kafka.budget, client="ragtrace-backfill") as shared:
        yield shared


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyStore:
    """A store that is read while its collectors run or are stopped. A file is opened for each reading."""

    name: str
    files: Files
    """Which files are read; it does not wait for news of them."""
    reader: StoredContent
    index: AnswerIndex
    reports: StoreReports


def read_once(config: StoreConfig) -> ReadOnlyStore:
    """Return the door to read what a configuration names, as it is now; blocks while a cluster is read.

    Whether a file is a store shows when it is read.

    Raises:
        ConfigError: a key is malformed, the folder cannot be used, or a library is not installed.
        ReadError: the cluster cannot be read.
    """
    if config.kafka is None:
        return _over_file(config)
    files = files_of(config)()
    return _over_cluster(config.kafka, lambda: files, cipher_of(config))


@asynccontextmanager
async def open_reading(config: StoreConfig, *, waits: bool = False) -> AsyncIterator[ReadOnlyStore]:
    """Open the door to read what a configuration names, while it changes.

    Whether a file is a store shows when it is read. The shards of a cluster are copied first, and followed
    then; with ``waits``, reading raises ReadError until they could be copied.

    Raises:
        ConfigError: a key is malformed, the folder cannot be used, or a library is not installed.
        ReadError: the cluster cannot be read, without ``waits``.
    """
    if config.kafka is None:
        yield _over_file(config)
        return
    cipher, replicas = cipher_of(config), _replicas_of(config.kafka, config.folder)
    from ragtrace_collector.store.replicas import followed

    async with followed(replicas, waits=waits) as files:
        yield _over_cluster(config.kafka, files, cipher)


def _over_file(config: StoreConfig) -> ReadOnlyStore:
    path, cipher = config.file, cipher_of(config)
    return ReadOnlyStore(
        name=f"store:{path}",
        files=lambda: {0: path},
        reader=StoreReader(path, cipher),
        index=index_of(path),
        reports=SqliteReports(path, cipher),
    )


def _over_cluster(kafka: KafkaStoreConfig, files: Files, cipher: PayloadCipher) -> ReadOnlyStore:
    return open_shards(
        files, name=kafka.url, cipher=cipher, shard_of=lambda trace_id: shard_of(trace_id, len(files()))
    )


def _replicas_of(kafka: KafkaStoreConfig, folder: Path) -> ShardReplicas:
    with needs_kafka("store.kafka"):
        from ragtrace_collector.store.replicas import ShardReplicas
    return ShardReplicas(kafka, folder / _REPLICAS)


_REPLICAS: Final = "readers"


def open_shards(
    files: Files,
    *,
    name: str,
    cipher: PayloadCipher,
    shard_of: ShardOf | None = None,
) -> ReadOnlyStore:
    """Return the door to read several stores as one: the files, by number, that there are when it is read."""

    def each(of_file: Callable[[Path], FoundT]) -> Callable[[], Mapping[int, FoundT]]:
        return lambda: {number: of_file(path) for number, path in files().items()}

    return ReadOnlyStore(
        name=name,
        files=files,
        reader=MergedReader(each(partial(StoreReader, cipher=cipher)), shard_of=shard_of),
        index=MergedAnswerIndex(each(index_of), part_of=shard_of),
        reports=MergedReports(each(partial(SqliteReports, cipher=cipher)), shard_of=shard_of),
    )
