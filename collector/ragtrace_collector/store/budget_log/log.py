"""The log as the budget needs it, so that the rules can be tested without brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ragtrace_collector.store.budget_log.replica import BudgetEntry


class BudgetLogReader(Protocol):
    """Gets what comes of a log, on the loop that it was started on."""

    def begin(self, first_offset: int) -> None:
        """Begin again with the first message that the log has: what was read before doesn't count."""
        ...

    def read(self, entries: Sequence[BudgetEntry]) -> None:
        """Take the next messages, in order."""
        ...

    def reach_end(self) -> None:
        """Note that the last message was read, as of a moment ago."""
        ...

    def lose(self, number: int, reason: str) -> None:
        """Note that a message may not be in the log, or may be."""
        ...

    def tell(self, trouble: str | None) -> None:
        """Note why the log cannot be used, or ``None`` if it can be used again."""
        ...


class BudgetLog(Protocol):
    """One log that several processes append to, in one order for all."""

    def start(self, reader: BudgetLogReader) -> None:
        """Read from the beginning of the log on; does not wait."""
        ...

    def append(self, number: int, value: bytes) -> None:
        """Send a message; ``number`` names it in ``lose``. It is in the log when it is read.

        Raises:
            StoreUnavailable: it is not sent.
        """
        ...

    def delete_before(self, offset: int) -> None:
        """Delete the messages before an offset, if the brokers allow that; does not wait."""
        ...

    def doubt(self) -> None:
        """Find out whether the log can be used, and tell it."""
        ...

    async def aclose(self) -> None:
        """Send what was appended, then end: afterwards, nothing is told any more."""
        ...
