"""Counts of the answers seen in the current and the last window, by tenant.

Adaptive rates are computed from these counts. They count answers *seen*, whether kept or not, so that a rate
never depends on the answer it decides about: this keeps its probability exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_TENANTS: Final = 1_000
"""Tenants beyond this number share one tally, because senders may write any tenant name."""


@dataclass(slots=True)
class WindowCounts:
    """The counts of one tenant in one window."""

    seen: int = 0
    demand: float = 0.0
    """How many would be kept on average without a limit: the sum of their rates."""
    floor: float = 0.0
    """How many of these are guaranteed to the tenant whatever the limit."""
    kept: int = 0


class WindowRow(NamedTuple):
    """A tally as it is stored."""

    period: str
    start_ns: int
    tenant: str
    seen: int
    demand: float
    floor: float
    kept: int


class UsefulWindows(NamedTuple):
    """The windows of a period that are still needed; the others can be deleted."""

    period: str
    first_ns: int
    last_ns: int


class Windows:
    """The tallies of one period: windows begin at multiples of its length."""

    def __init__(self, period: str, length_ns: int) -> None:
        self.period = period
        self.start_ns = 0
        self.current: dict[str, WindowCounts] = {}
        self.last: dict[str, WindowCounts] = {}
        self._length_ns = length_ns
        self._changed: set[str] = set()
        self._rolled = False

    def roll(self, now_ns: int) -> bool:
        """Begin the current window, never an earlier one; say whether it changed."""
        start_ns = now_ns - now_ns % self._length_ns
        if start_ns <= self.start_ns:
            return False
        self.last = self.current if start_ns == self.start_ns + self._length_ns else {}
        self.start_ns, self.current = start_ns, {}
        self._changed.clear()
        self._rolled = True
        return True

    def of(self, tenant: str) -> WindowCounts:
        """Return the tally of a tenant in the current window, to be changed."""
        known = tenant in self.current or len(self.current) < MOST_TENANTS
        name = tenant if known else ""
        self._changed.add(name)
        return self.current.setdefault(name, WindowCounts())

    def changes(self) -> tuple[WindowRow, ...]:
        """Return the changes since the last call, to be stored."""
        rows = tuple(self._row(tenant) for tenant in self._changed)
        self._changed.clear()
        return rows

    def horizon(self) -> UsefulWindows | None:
        """Return which windows are needed, if that changed since the last call."""
        rolled, self._rolled = self._rolled, False
        return UsefulWindows(self.period, self.start_ns - self._length_ns, self.start_ns) if rolled else None

    def learn(self, rows: Iterable[WindowRow]) -> None:
        """Take the last window's counts from those of all processes."""
        self.last = {
            row.tenant: WindowCounts(seen=row.seen, demand=row.demand, floor=row.floor, kept=row.kept)
            for row in rows
            if row.period == self.period and row.start_ns == self.start_ns - self._length_ns
        }

    def restore(self, rows: Iterable[WindowRow], now_ns: int) -> None:
        """Restore the state of the last process."""
        mine = [row for row in rows if row.period == self.period]
        for start_ns in sorted({row.start_ns for row in mine}):
            self.roll(start_ns)
            self.current = {
                row.tenant: WindowCounts(seen=row.seen, demand=row.demand, floor=row.floor, kept=row.kept)
                for row in mine
                if row.start_ns == start_ns
            }
        self.roll(now_ns)

    def _row(self, tenant: str) -> WindowRow:
        tally = self.current[tenant]
        return WindowRow(
            self.period, self.start_ns, tenant, tally.seen, tally.demand, tally.floor, tally.kept
        )
