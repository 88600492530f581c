"""Where the store of a test lives."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ragtrace_collector.store.budget import BudgetRows
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store, open_tables

MAX_BYTES = 10 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A file that is opened again and again, as by one process after another."""

    path: Path

    async def open(self, *, max_bytes: int = MAX_BYTES, forward_to: Sequence[str] = ()) -> Store:
        """Open the store, as a start of the collector does."""
        return await Store.open(SqliteFile(self.path), max_bytes=max_bytes, forward_to=forward_to)

    def as_of_now(self, folder: Path) -> Place:
        """Return what a process would find if this one were killed at this moment."""
        folder.mkdir()
        copy = folder / self.path.name
        for end in ("", "-wal"):  # the log last: it has what the file lacks
            shutil.copyfile(f"{self.path}{end}", f"{copy}{end}")
        return Place(copy)


@asynccontextmanager
async def open_budget(path: Path) -> AsyncIterator[BudgetRows]:
    """Open what was spent in a file, as a command beside the collector does."""
    async with open_tables(SqliteFile(path)) as tables:
        yield BudgetRows(tables)
