"""Opens the work store that a configuration names."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

from ragtrace.files.state import make_state_folder
from ragtrace_collector.config import StoreConfig
from ragtrace_collector.store.cipher import PayloadCipher, open_cipher
from ragtrace_collector.store.open_errors import UnfitFile, unusable
from ragtrace_collector.store.schema import check_application_id
from ragtrace_collector.store.sqlite import SqliteStore

log = logging.getLogger("ragtrace.collector")


async def open_store(
    config: StoreConfig, *, forward_to: Sequence[str], tenants: Collection[str]
) -> SqliteStore:
    """Open the store of one collector process, and end the leases that a crash left.

    Args:
        config: The section ``store``.
        forward_to: The sinks that get the spans of held traces when these are released.
        tenants: Those that tokens name.

    Raises:
        ConfigError: it cannot be used.
    """
    return await SqliteStore.open(
        _file_of(config),
        max_bytes=config.max_bytes,
        forward_to=forward_to,
        cipher=cipher_of(config),
        tenants=tenants,
    )


def cipher_of(config: StoreConfig) -> PayloadCipher:
    """Return the cipher of the content in the store.

    Raises:
        ConfigError: a key is malformed, or the encryption library is not installed.
    """
    return open_cipher([key.get_secret_value() for key in config.encryption_keys])


def check_owner(path: Path) -> None:
    """Check that a database is a store, or an empty one. Nothing is created, and nobody is kept waiting.

    Raises:
        ConfigError: it holds another program's tables, or was written by another ragtrace.
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
