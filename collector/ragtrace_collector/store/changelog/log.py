"""The port of a log of rows: what a store needs of the topic that keeps its state.

A log keeps the last value of each key, in the order of writing. Every method blocks: one thread calls them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ragtrace.errors import RagtraceError

SqlValue = None | int | float | str | bytes
"""What a column of SQLite holds."""


class LogUnavailable(RagtraceError):
    """The log cannot be read or written now. Nothing was written; it may work later."""


class LogLost(RagtraceError):
    """The log has another owner, or nobody knows whether rows were written: open the store again."""


class LogDamaged(RagtraceError):
    """The log holds what is no row."""


class LoggedRow(NamedTuple):
    """A row as it is after a change."""

    table: str
    key: tuple[SqlValue, ...]
    values: tuple[SqlValue, ...] | None
    """The columns beside the key, in the table's order; ``None`` if the row was deleted."""


class RowBatch(NamedTuple):
    """Rows that follow each other in a log."""

    rows: Sequence[LoggedRow]
    places: Sequence[int]
    """The position of each, for messages."""
    position: int
    """Where reading goes on after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """How a log is at a moment."""

    id: str
    """The same for as long as it is the same log: a topic that was deleted and made again is another."""
    start: int
    """The first position that can still be read."""
    end: int
    """The position after the last row."""
    deletions_kept_s: float
    """For how long the log keeps at least that a row was deleted: a copy that is older must be made anew."""


class RowReader(Protocol):
    """Reads a log without owning it."""

    @property
    def name(self) -> str:
        """What to call the log in messages."""
        ...

    def look(self) -> LogState:
        """Return how the log is now.

        Raises:
            LogUnavailable: it does not answer.
        """
        ...

    def read(self, after: int) -> Iterator[RowBatch]:
        """Yield everything that was committed from a position on, up to the end as it is now.

        The last batch has the position of the end, and may have no rows.

        Raises:
            LogUnavailable: it does not answer.
            LogDamaged: a message is no row. It names topic, partition and offset.
        """
        ...

    def close(self) -> None:
        """Give the connections back. It may be called twice."""
        ...


class RowLog(RowReader, Protocol):
    """Owns a log: nobody else writes into it."""

    @property
    def most_row_bytes(self) -> int:
        """How large a row may be as a message."""
        ...

    def open(self) -> None:
        """Become the owner: what its former owner writes from now on is refused, and what it began is ended.

        Raises:
            LogUnavailable: it does not answer.
            LogLost: another owner came at the same time.
        """
        ...

    def write(self, rows: Iterable[LoggedRow]) -> int:
        """Write rows, all or none, and return the position after them.

        Raises:
            LogUnavailable: nothing was written.
            LogLost: somebody else owns the log, or nobody knows whether the rows were written.
        """
        ...
