"""Where the store of a test lives."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ragtrace_collector.store.budget import BudgetRows
from ragtrace_collector.store.postgres import PostgresServer
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store, open_tables
from tests.backends.postgres_server import Postgres
from tests.backends.process import eventually

MAX_BYTES = 10 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A file that is opened again and again, as by one process after another."""

    path: Path

    @property
    def address(self) -> str:
        """What names it to another process."""
        return str(self.path)

    @property
    def config(self) -> Mapping[str, str]:
        """The section ``store`` of a collector there."""
        return {"path": str(self.path)}

    @property
    def database(self) -> SqliteFile:
        """What reads it."""
        return SqliteFile(self.path)

    def after_a_while(self) -> Place:
        """Return it as it is found once a process that was killed is missed: at once."""
        return self

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


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A database that is opened again and again, as by one process after another."""

    server: Postgres
    url: str

    @property
    def address(self) -> str:
        """What names it to another process."""
        return self.url

    @property
    def config(self) -> Mapping[str, str]:
        """The section ``store`` of a collector there."""
        return {"url": self.url}

    @property
    def database(self) -> PostgresServer:
        """What reads it."""
        return PostgresServer(self.url)

    def after_a_while(self) -> PostgresPlace:
        """Return it as it is found once a process that was killed is missed."""
        # the server must have heard nothing of it for as long
        gone_s = PostgresServer(self.url).gone_s
        waited = f"SELECT now() - pg_postmaster_start_time() > interval '{gone_s} seconds'"
        eventually(lambda: self.server.execute(waited) == [(True,)], what="a server that runs for a while")
        self.server.execute("UPDATE ragtrace.writer SET seen_ns = seen_ns - 60000000000", self.url)
        return self

    async def open(self, *, max_bytes: int = 1 << 30, forward_to: Sequence[str] = ()) -> Store:
        """Open the store, as a start of the collector does."""
        return await Store.open(PostgresServer(self.url), max_bytes=max_bytes, forward_to=forward_to)

    def as_of_now(self, folder: Path) -> PostgresPlace:
        """Return what a process would find if this one were killed at this moment, and missed."""
        return PostgresPlace(self.server, self.server.copy(self.url)).after_a_while()


@asynccontextmanager
async def open_budget(path: Path) -> AsyncIterator[BudgetRows]:
    """Open what was spent in a file, as a command beside the collector does."""
    async with open_tables(SqliteFile(path)) as tables:
        yield BudgetRows(tables)
