"""What portable SQL needs of a connection, so that one statement runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """What a statement returned."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row as a tuple, or ``None``."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left, as tuples."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Db(Protocol):
    """A connection inside a transaction, of any engine.

    Statements have ``?`` for each value, in order, and no function or clause that one engine lacks: explicit
    targets of ``ON CONFLICT``, flags as ``= 1``, ``CASE`` for the smaller of two values.
    """

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each row of values."""
        ...

    @property
    def writer(self) -> int:
        """The number of the process, among those that write the same tables; 0 where no other one does."""
        ...


def skip_locked(db: Db) -> str:
    """Return what a query ends with so that its rows are this transaction's, without those of another one."""
    return " FOR UPDATE SKIP LOCKED" if db.writer else ""


def keep_locked(db: Db) -> str:
    """Return what a query ends with so that its rows stay as they are until this transaction ends."""
    return " FOR UPDATE" if db.writer else ""
