"""The one place that chooses the adapter of the work store, by the configuration."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final, Protocol

from ragtrace.answers.index.parts import IndexPart
from ragtrace.budget import SpendLedger
from ragtrace.errors import ConfigError
from ragtrace.files.state import make_state_folder
from ragtrace_collector.config import StoreConfig
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.store._files import StoreLock
from ragtrace_collector.store.cipher import PayloadCipher, open_cipher
from ragtrace_collector.store.merged import ShardContent, ShardStore
from ragtrace_collector.store.open_errors import UnfitFile, unusable
from ragtrace_collector.store.port import WorkStore
from ragtrace_collector.store.schema import check_application_id
from ragtrace_collector.store.shard import Shard
from ragtrace_collector.store.sqlite import SqliteStore

log = logging.getLogger("ragtrace.collector")


class OpenStore(Protocol):
    """Opens a work store for one collector process."""

    async def __call__(
        self, config: StoreConfig, *, forward_to: Sequence[str], tenants: Collection[str]
    ) -> WorkStore:
        """Open what the configuration names, and end the leases that a crash left.

        Args:
            config: The section ``store``.
            forward_to: The sinks that get the spans of held traces when these are released.
            tenants: Those that tokens name.

        Raises:
            ConfigError: it cannot be used.
        """
        ...


async def open_store(
    config: StoreConfig, *, forward_to: Sequence[str], tenants: Collection[str]
) -> WorkStore:
    """Open the store that a configuration names: a SQLite file. This is `OpenStore`."""
    return await SqliteStore.open(
        _file_of(config),
        max_bytes=config.max_bytes,
        forward_to=forward_to,
        cipher=cipher_of(config),
        tenants=tenants,
    )


class OwnedStore(WorkStore, ShardStore, Protocol):
    """The store of a shard that this process owns."""

    @property
    def answers(self) -> IndexPart:
        """The rows of judged answers."""
        ...

    @property
    def content(self) -> ShardContent:
        """What answers are opened from."""
        ...

    @property
    def lost(self) -> asyncio.Event:
        """Set when it can do nothing more, as when another process owns the shard now: open it again."""
        ...


async def open_shard(
    config: StoreConfig,
    shard: Shard,
    *,
    folder: Path,
    forward_to: Sequence[str],
    tenants: Collection[str],
    is_crash: bool,
) -> OwnedStore:
    """Own a shard of a cluster: fence its former owner, and bring the copy in the folder up to date.

    ``is_crash`` says that the former owner crashed, and did not only lose the shard.

    Raises:
        ConfigError: the folder cannot be used, or the state is damaged or was written by a newer ragtrace.
        StoreUnavailable: the brokers do not answer, or another owner came meanwhile: try again.
    """
    from ragtrace_collector.store.changelog.kafka import KafkaRowLog
    from ragtrace_collector.store.changelog.store import open_logged_store

    kafka = _kafka_of(config)
    log = KafkaRowLog(
        kafka.client_settings(),
        topic=kafka.state,
        partition=shard.number,
        transactional_id=kafka.transactional_id(shard.number),
    )
    return await open_logged_store(
        folder / f"shard-{shard.number}.db",
        log,
        max_bytes=shard.share(config.max_bytes),
        forward_to=forward_to,
        cipher=cipher_of(config),
        tenants=tenants,
        is_crash=is_crash,
    )


@asynccontextmanager
async def open_cluster_budget(config: StoreConfig, *, is_reached: bool) -> AsyncIterator[SpendLedger]:
    """Open the budget that all processes of a cluster share.

    Args:
        is_reached: Whether the brokers answer, so that the log is worth waiting for: else it is read later.
    """
    from ragtrace_collector.store.budget_log.kafka import kafka_budget

    kafka = _kafka_of(config)
    budget = kafka_budget(kafka.client_settings(), kafka.budget, client="ragtrace")
    try:
        await (budget.open() if is_reached else budget.open(wait_s=0))
        yield budget
    finally:
        await budget.aclose()


def _kafka_of(config: StoreConfig) -> KafkaStoreConfig:
    assert config.kafka is not None
    return config.kafka


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """Hold a folder for the files of this process: the first that no other process of this machine holds.

    A process that starts again mostly gets the files of its earlier self.

    Raises:
        ConfigError: the folder cannot be used.
    """
    for number in range(_MOST_PROCESSES):
        mine = folder / f"process-{number}"
        try:
            mine.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = StoreLock(mine / "owner")
        except ConfigError:
            continue
        except OSError as exc:
            raise ConfigError(f"`store.path`: the folder {str(folder)!r} cannot be used: {exc}") from exc
        try:
            yield mine
        finally:
            lock.close()
        return
    raise ConfigError(
        f"`store.path`: {_MOST_PROCESSES} processes use the folder {str(folder)!r}: name another"
    )


_MOST_PROCESSES: Final = 256


def cipher_of(config: StoreConfig) -> PayloadCipher:
    """Return the cipher of the content in the store.

    Raises:
        ConfigError: a key is malformed, or the encryption library is not installed.
    """
    return open_cipher([key.get_secret_value() for key in config.encryption_keys])


def check_owner(path: Path) -> None:
    """Check that a database is a store, or an empty one. Nothing is created, and nobody is kept waiting.

    Raises:
        ConfigError: it holds another program's tables, or was written by a newer ragtrace.
    """
    # immutable: without it, files for the log would be made beside one that nobody has open
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as db:
            check_application_id(db)
    except UnfitFile as exc:
        raise unusable(path, exc) from exc
    except sqlite3.Error:
        pass  # a collector may write there at this moment; one that starts looks at all of it


def _file_of(store: StoreConfig) -> Path:
    if store.path is not None:
        return store.path
    make_state_folder()
    return store.file
