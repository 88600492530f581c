"""The adapters that the conformance kit runs on, and where the store of a test lives."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import ClassVar

from ragtrace_collector.store.changelog.store import open_logged_store
from ragtrace_collector.store.port import WorkStore
from ragtrace_collector.store.sqlite import SqliteStore
from tests.stores.memory import MemoryStore
from tests.stores.memory_state import MemoryState
from tests.stores.row_log import MemoryLog, MemoryTopic

MAX_BYTES = 10 << 20


class Place(ABC):
    """Where one store lives: it is opened here again and again, as by one process after another."""

    name: ClassVar[str]
    survives_restart: ClassVar[bool]
    """Whether what was acknowledged outlives the process by itself.

    If not, ``open`` hands over the state object: then a test of a restart says that the store takes back what
    the process before it left, and nothing of durability."""

    @classmethod
    @abstractmethod
    def of(cls, folder: Path) -> Place:
        """Return an empty place; it may use the folder."""

    @abstractmethod
    async def open(self, *, max_bytes: int = MAX_BYTES, forward_to: Sequence[str] = ()) -> WorkStore:
        """Open the store, as a start of the collector does."""

    @abstractmethod
    def as_of_now(self, folder: Path) -> Place:
        """Return what a process would find if this one were killed at this moment."""


class SqlitePlace(Place):
    name = "sqlite"
    survives_restart = True

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, folder: Path) -> SqlitePlace:
        return cls(folder / "store.db")

    async def open(self, *, max_bytes: int = MAX_BYTES, forward_to: Sequence[str] = ()) -> WorkStore:
        return await SqliteStore.open(self.path, max_bytes=max_bytes, forward_to=forward_to)

    def as_of_now(self, folder: Path) -> SqlitePlace:
        folder.mkdir()
        copy = folder / self.path.name
        for end in ("", "-wal"):  # the log last: it has what the file lacks
            shutil.copyfile(f"{self.path}{end}", f"{copy}{end}")
        return SqlitePlace(copy)


class MemoryPlace(Place):
    name = "memory"
    survives_restart = False

    def __init__(self, state: MemoryState) -> None:
        self.state = state

    @classmethod
    def of(cls, folder: Path) -> MemoryPlace:
        return cls(MemoryState())

    async def open(self, *, max_bytes: int = MAX_BYTES, forward_to: Sequence[str] = ()) -> WorkStore:
        return MemoryStore(self.state, max_bytes=max_bytes, forward_to=forward_to)

    def as_of_now(self, folder: Path) -> MemoryPlace:
        return MemoryPlace(deepcopy(self.state))


class LoggedPlace(Place):
    """A log of rows. A crash leaves the log alone, as if the disk with the file were lost."""

    name = "logged"
    survives_restart = False

    def __init__(self, topic: MemoryTopic, path: Path) -> None:
        self.topic = topic
        self.path = path

    @classmethod
    def of(cls, folder: Path) -> LoggedPlace:
        return cls(MemoryTopic(), folder / "copy.db")

    async def open(self, *, max_bytes: int = MAX_BYTES, forward_to: Sequence[str] = ()) -> WorkStore:
        log = MemoryLog(self.topic)
        return await open_logged_store(self.path, log, max_bytes=max_bytes, forward_to=forward_to)

    def as_of_now(self, folder: Path) -> LoggedPlace:
        folder.mkdir()
        return LoggedPlace(self.topic.copied(), folder / self.path.name)


PLACES: tuple[type[Place], ...] = (SqlitePlace, MemoryPlace, LoggedPlace)
"""Another adapter joins here."""
