"""Opens what a configuration names for reading, while its collector runs or is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragtrace.answers.index.reading import SqliteAnswerIndex
from ragtrace_collector.config import StoreConfig
from ragtrace_collector.store.open import cipher_of
from ragtrace_collector.store.reader import StoreReader, index_of
from ragtrace_collector.store.reports import SqliteReports


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyStore:
    """A store that is read while its collector runs or is stopped: it is opened for each reading."""

    path: Path
    reader: StoreReader
    index: SqliteAnswerIndex
    reports: SqliteReports

    @property
    def name(self) -> str:
        """What it is, for people."""
        return f"store:{self.path}"


def open_reading(config: StoreConfig) -> ReadOnlyStore:
    """Return the door to read what a configuration names. Whether there is a store shows when it is read.

    Raises:
        ConfigError: a key is malformed, or the encryption library is not installed.
    """
    path, cipher = config.file, cipher_of(config)
    return ReadOnlyStore(
        path=path,
        reader=StoreReader(path, cipher),
        index=index_of(path, cipher),
        reports=SqliteReports(path, cipher),
    )
