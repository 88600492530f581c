"""Budgets: what may be spent in a window of time, and whether one more request fits.

Pure arithmetic. What was spent stands in the store; a request is counted there before it is made, by an
estimate, and corrected after. So a crash between the two leaves the estimate counted, never nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from ragtrace.errors import JudgeError, JudgeOverBudget
from ragtrace.judge.spend import Limit, Spend

_NANO: Final = 1_000_000_000
_AHEAD: Final = 0.1
"""How far spending may run ahead of the clock before nothing more is sampled, as a share of the limit."""


class Period(StrEnum):
    """How long a window is."""

    MINUTE = "minute"
    DAY = "day"
    MONTH = "month"

    def window(self, now_ns: int) -> BudgetWindow:
        """Return the window of this length that holds a moment. Windows begin where UTC's do."""
        now = datetime.fromtimestamp(now_ns // _NANO, UTC).replace(second=0)
        match self:
            case Period.MINUTE:
                return BudgetWindow(period=self, start_ns=_ns(now), end_ns=_ns(now + timedelta(minutes=1)))
            case Period.DAY:
                start = now.replace(hour=0, minute=0)
                return BudgetWindow(period=self, start_ns=_ns(start), end_ns=_ns(start + timedelta(days=1)))
            case Period.MONTH:
                start = now.replace(day=1, hour=0, minute=0)
                following = (start + timedelta(days=32)).replace(day=1)
                return BudgetWindow(period=self, start_ns=_ns(start), end_ns=_ns(following))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWindow:
    """One minute, day or month: Unix time in nanoseconds, without its end."""

    period: Period
    start_ns: int
    end_ns: int

    def elapsed(self, now_ns: int) -> float:
        """Return the share of the window that is over, from 0 to 1."""
        return min(1.0, max(0.0, (now_ns - self.start_ns) / (self.end_ns - self.start_ns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceededLimit:
    """A limit would be exceeded."""

    limit: str
    """``day_usd``: the period, and what of it was spent."""
    until_ns: int
    """When its window ends."""


class OverBudget(JudgeOverBudget):
    """A window of the budget has no room for a request to the judge, which was not made."""

    def __init__(self, budget: str, refusal: ExceededLimit) -> None:
        super().__init__(f"the budget `{budget}` has nothing left ({refusal.limit})")
        self.refusal = refusal


class BudgetStoreUnavailable(JudgeError):
    """The store takes no note of a request to the judge, which was not made therefore."""

    error_type = "store_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A name, under which spending is counted, and its limits by period."""

    name: str
    limits: Mapping[Period, Limit]

    @property
    def limits_money(self) -> bool:
        """Whether a limit is in US dollars: then all prices must be known."""
        return any(limit.usd_nano is not None for limit in self.limits.values())

    def windows(self, now_ns: int) -> tuple[BudgetWindow, ...]:
        """Return the windows that hold a moment, of every period that has a limit."""
        return tuple(period.window(now_ns) for period in self.limits)

    def refusal(
        self, spent: Mapping[BudgetWindow, Spend], estimate: Spend, *, share: float = 1.0
    ) -> ExceededLimit | None:
        """Say which limit keeps a request from being made: of several, the one that lasts longest.

        A request that is larger than a whole limit is let through where nothing was spent yet: it exceeds
        the limit by itself, but would else never be made.

        Args:
            spent: What was spent in each of the windows.
            estimate: What the request will cost at most.
            share: Of the limits, from 0 to 1: what is beyond belongs to others.
        """
        found = [
            ExceededLimit(limit=f"{window.period}_{name}", until_ns=window.end_ns)
            for window, before in spent.items()
            if before != Spend()
            and (name := self.limits[window.period].exceeded_by(before + estimate, share=share))
        ]
        return max(found, key=lambda refusal: refusal.until_ns, default=None)


class LimitUsage(NamedTuple):
    """What is spent and left under one limit: calls, tokens or billionths of a dollar."""

    limit: str
    """``day_usd``"""
    spent: int
    most: int
    resets_ns: int
    """When the next window begins: Unix time in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """What was spent of a purse in the windows of a moment."""

    budget: Budget
    spent: Mapping[BudgetWindow, Spend]
    """Requests under way are in it by their estimates."""

    def left(self) -> tuple[LimitUsage, ...]:
        """Return what is spent and left under each limit, in the order of the periods."""
        return tuple(
            LimitUsage(limit=f"{window.period}_{name}", spent=amount, most=most, resets_ns=window.end_ns)
            for window, spent in self.spent.items()
            for name, most, amount in self.budget.limits[window.period].pairs(spent)
        )

    def share_to_sample(self, now_ns: int) -> float:
        """Return the share of traffic, from 0 to 1, with which the spending lasts for the window.

        It falls where spending runs ahead of the clock, and vanishes with what is left. Minutes do not
        count: who waits for the next one loses nothing.
        """
        shares = (
            _share(self.budget.limits[window.period].used(spent), window.elapsed(now_ns))
            for window, spent in self.spent.items()
            if window.period is not Period.MINUTE
        )
        return min(shares, default=1.0)


def _share(used: float, elapsed: float) -> float:
    on_pace = 1 - (used - elapsed) / _AHEAD
    lasting = (1 - used) / max(1 - elapsed, 1e-9)
    return min(1.0, max(0.0, on_pace)) * min(1.0, max(0.0, lasting))


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * _NANO
