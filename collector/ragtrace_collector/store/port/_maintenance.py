"""Maintenance: what is deleted, the latest time, and the end."""

from __future__ import annotations

from typing import Protocol


class MaintenanceStore(Protocol):
    """What a store does for itself."""

    async def expire(
        self,
        *,
        decided_before_ns: int,
        ended_before_ns: int,
        began_before_ns: int = 0,
        most_rows: int | None = None,
        keeps_content: bool = True,
    ) -> int:
        """Delete the spans of decided traces, ended jobs and rejected items that are older.

        A trace stays while one of its jobs has not ended, while it is held, and while spans that came later
        wait for a decision. An ended job stays as long as its trace: until then, an answer whose spans are
        sent again is recognized. Of the index, the rows of answers that began before ``began_before_ns`` are
        deleted with what is kept of them, and the oldest beyond ``most_rows``. When three quarters of the
        store are in use, the oldest answers lose their content, and without ``keeps_content`` all do. Mail
        that was received before ``ended_before_ns`` is new if it comes again.

        It works in portions, a transaction each. Return how many traces were deleted.
        """
        ...

    async def latest_ns(self) -> int:
        """Return the latest time in the store, 0 if it is empty.

        The collector's clock never goes back behind it.
        """
        ...

    async def aclose(self) -> None:
        """Commit what is under way and close. Leases that are left end when the store is opened again."""
        ...
