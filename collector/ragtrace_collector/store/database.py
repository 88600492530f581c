"""What the store needs of the engine that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from ragtrace.sql import Db
from ragtrace_collector.store.cipher import PayloadCipher

T = TypeVar("T")


class Commits(Protocol):
    """A thread that owns a connection and commits submissions in groups, in order."""

    is_shared: bool
    """Whether other collectors may write the same store."""

    async def submit(self, work: Callable[[Db], T], *, is_acknowledged: bool = False) -> T:
        """Run ``work`` inside a transaction; when it returns, it is durable. If it raises, nothing is kept.

        Submitted work is committed even if the caller is canceled. ``is_acknowledged`` means that a sender
        will be told that the data is safe.

        Raises:
            StoreUnavailable: the database is full, away or damaged: nothing is kept.
        """
        ...

    async def check(self, *, max_bytes: int) -> None:
        """Raise StoreUnavailable if more data cannot be taken, whatever room the tables have."""
        ...

    def write_nothing_new(self, db: Db) -> None:
        """Write something that changes nothing, to see whether the disk accepts writes."""
        ...

    def shrink(self, db: Db) -> bool:
        """Return some unused room to the disk; say whether there is more."""
        ...

    async def aclose(self) -> None:
        """Commit what was submitted, then close."""
        ...


class Database(Protocol):
    """A place for one store."""

    @property
    def name(self) -> str:
        """What people call it, without secrets."""
        ...

    def reading(self) -> AbstractContextManager[Db]:
        """Open it for reading, while collectors run or are stopped. All reads see one moment.

        Raises:
            ReadError: it is away, or holds no store of this version.
        """
        ...

    async def open(self, cipher: PayloadCipher, *, is_collector: bool) -> Commits:
        """Open it for writing, and create its tables if it is empty.

        A collector on a file excludes others; the commands beside it do not ask.

        Raises:
            ConfigError: it cannot be used, holds something else, or was encrypted with another key.
        """
        ...

    def used_bytes(self, db: Db) -> int:
        """Return how much of ``store.max_bytes`` is in use, read on a connection of ``reading``."""
        ...

    def close(self) -> None:
        """Close what readings left open for the next ones."""
        ...
