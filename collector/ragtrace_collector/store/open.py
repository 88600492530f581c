"""Opens the store that a configuration names, to be the collector's or to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragtrace.answers.index import AnswerIndex
from ragtrace.errors import ConfigError, InputError
from ragtrace.extras import install_command
from ragtrace.files import make_state_folder
from ragtrace_collector.config import StoreConfig
from ragtrace_collector.store.cipher import PayloadCipher, open_cipher
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.ledger import Reports
from ragtrace_collector.store.reader import StoreReader, index_of
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store, open_tables


async def open_store(config: StoreConfig, *, forward_to: Sequence[str]) -> Store:
    """Open the store of one collector process, and end the leases that a crash left.

    Args:
        config: The section ``store``.
        forward_to: The sinks that get the spans of held traces when these are released.

    Raises:
        ConfigError: it cannot be used.
    """
    if config.path is None and config.url is None:
        make_state_folder()
    return await Store.open(
        database_of(config), max_bytes=config.max_bytes, forward_to=forward_to, cipher=cipher_of(config)
    )


def database_of(config: StoreConfig) -> Database:
    """Return where the store is. Whether there is one shows when it is opened or read.

    Raises:
        ConfigError: the driver of the database is not installed, or cannot use the address.
    """
    if config.url is None:
        return SqliteFile(config.file)
    try:
        from ragtrace_collector.store.postgres import PostgresServer
    except ImportError as exc:  # psycopg raises it, too, if there is no libpq
        raise ConfigError(
            f"`store.url` needs psycopg, which is not installed: {install_command('postgres')}"
        ) from exc
    return PostgresServer(config.url.get_secret_value())


def cipher_of(config: StoreConfig) -> PayloadCipher:
    """Return the cipher of the content in the store.

    Raises:
        ConfigError: a key is malformed, or the encryption library is not installed.
    """
    return open_cipher([key.get_secret_value() for key in config.encryption_keys])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyStore:
    """A store that is read while its collector runs or is stopped: it is opened for each reading."""

    database: Database
    reader: StoreReader
    index: AnswerIndex
    reports: Reports

    @property
    def name(self) -> str:
        """What it is, for people."""
        return f"store:{self.database.name}"


def require_store(config: StoreConfig) -> None:
    """Look before somebody waits for answers; what else is wrong with a store shows when it is read.

    Raises:
        InputError: there is no such file.
    """
    if config.url is None and not config.file.exists():
        raise InputError(
            f"there is no collector's store {str(config.file)!r}: start `ragtrace collector`, name another"
            " with --from store:PATH or --config FILE, or read a back end: --from jaeger:http://localhost:16686"
        )


def open_reading(config: StoreConfig) -> ReadOnlyStore:
    """Return the door to read what a configuration names. Whether there is a store shows when it is read.

    Raises:
        ConfigError: a key is malformed, or a library is not installed.
    """
    database, cipher = database_of(config), cipher_of(config)
    return ReadOnlyStore(
        database=database,
        reader=StoreReader(database, cipher),
        index=index_of(database, cipher),
        reports=Reports(database, cipher),
    )


class RefusedDeliveries(NamedTuple):
    """Outbox items that a sink refused for one reason; they are kept for ``store.retention``."""

    sink: str
    reason: str
    requests: int
    oldest_ns: int


def refused(store: Database) -> tuple[RefusedDeliveries, ...]:
    """Return the items that sinks refused for good, by sink and reason.

    Raises:
        ReadError: the store cannot be read.
    """
    with store.reading() as db:
        rows = db.execute(
            "SELECT sink, reason, count(*), min(rejected_ns) FROM parcel WHERE rejected_ns IS NOT NULL"
            " GROUP BY sink, reason ORDER BY 1, 2"
        )
        return tuple(RefusedDeliveries(*row) for row in rows)


async def send_again(store: Database) -> int:
    """Put the items that sinks refused back into the outbox; return how many.

    A running collector sends them within a second.

    Raises:
        ReadError: the store cannot be read.
        ConfigError: it cannot be written.
    """
    with store.reading():
        pass  # raises if there is none
    statement = "UPDATE parcel SET rejected_ns = NULL, reason = '' WHERE rejected_ns IS NOT NULL"
    async with open_tables(store) as tables:
        return await tables.submit(lambda db: db.execute(statement).rowcount)
