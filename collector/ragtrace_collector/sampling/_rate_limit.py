"""A limit of answers a minute: it lowers rates first, and drops answers only beyond the limit."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ragtrace_collector.sampling.windows import WindowCounts, Windows

LIMIT: Final = "limit"
"""The period of its windows."""
_MINUTE_NS: Final = 60 * 10**9


class Place(NamedTuple):
    """A place in a window that was taken, if the counts of all processes allow it."""

    span_id: str
    start_ns: int
    tenant: str
    answers: int | None
    """How many answers may have a place in the window; ``None`` for any number."""
    per_tenant: int | None


class Limits:
    """Lowers all rates by one factor a window, so that about as many are kept as the limit allows.

    The factor comes from the demand of the last window and is constant within a window, so that the sampling
    probability is known. Only answers beyond the limit in spite of that are shed.
    """

    def __init__(self, *, answers: int | None, per_tenant: int | None) -> None:
        self.windows = Windows(LIMIT, _MINUTE_NS)
        self._answers = answers
        self._per_tenant = per_tenant
        self._factor = 1.0

    def roll(self, now_ns: int) -> bool:
        """Begin the current window, with the factor from the last one; say whether it changed."""
        began = self.windows.roll(now_ns)
        if began:
            self.recompute()
        return began

    def recompute(self) -> None:
        """Compute the factor of the current window from the last one."""
        demand = sum(
            tally.demand * self._factor_of(tally, self._per_tenant) for tally in self.windows.last.values()
        )
        owed = sum(tally.floor for tally in self.windows.last.values())
        self._factor = self._factor_of(WindowCounts(demand=demand, floor=owed), self._answers)

    def factor_of(self, tenant: str) -> float:
        """Return the factor of a tenant's rates in this window."""
        last = self.windows.last.get(tenant)
        return self._factor * (self._factor_of(last, self._per_tenant) if last else 1.0)

    def see(self, tenant: str, *, demand: float, floor: float) -> None:
        """Count an answer, with its rate without limits, and its guaranteed rate."""
        tally = self.windows.of(tenant)
        tally.seen += 1
        tally.demand += demand
        tally.floor += floor

    def take(self, tenant: str) -> bool:
        """Take a place in this window, and say whether there was one."""
        tally = self.windows.of(tenant)
        kept = sum(each.kept for each in self.windows.current.values())
        is_full = self._answers is not None and kept >= self._answers
        if is_full or (self._per_tenant is not None and tally.kept >= self._per_tenant):
            return False
        tally.kept += 1
        return True

    def give_back(self, tenant: str) -> None:
        """Give a place back: another process had the last one."""
        self.windows.of(tenant).kept -= 1

    def place(self, tenant: str, span_id: str) -> Place:
        """Return what a place that was taken is to the store."""
        name = tenant if tenant in self.windows.current else ""
        return Place(span_id, self.windows.start_ns, name, self._answers, self._per_tenant)

    @staticmethod
    def _factor_of(last: WindowCounts, limit: int | None) -> float:
        room = math.inf if limit is None else max(_target(limit) - last.floor, 0.0)
        return 1.0 if last.demand <= room else room / last.demand


def _target(limit: int) -> float:
    """Return the number to aim at, so that chance (a Poisson number) seldom exceeds the limit."""
    return max(limit - 2 * math.sqrt(limit), limit / 2)
