"""Budgets: what may be spent in a window of time, and whether one more request fits.

Pure arithmetic. The spending itself is in the store: a request is counted there by an estimate before it is
made, and corrected after. A crash between the two leaves the estimate counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from ragtrace.budget.amounts import Limit, Spend
from ragtrace.errors import JudgeError, JudgeOverBudget

_NANO: Final = 1_000_000_000
_AHEAD: Final = 0.1
"""How far spending may run ahead of the clock before nothing more is sampled, as a share of the limit."""


class Period(StrEnum):
    """How long a window is."""

    MINUTE = "minute"
    DAY = "day"
    MONTH = "month"

    def window(self, now_ns: int) -> BudgetWindow:
        """Return the window of this length that holds a moment. Windows follow UTC."""
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
    """One minute, day or month in Unix nanoseconds; the end is exclusive."""

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
    """``day_usd``: the period and the unit."""
    until_ns: int
    """When its window ends."""


class OverBudget(JudgeOverBudget):
    """A window of the budget has no room for a request to the judge, so the request was not made."""

    def __init__(self, budget: str, refusal: ExceededLimit) -> None:
        super().__init__(f"the budget `{budget}` has nothing left ({refusal.limit})")
        self.refusal = refusal


class BudgetStoreUnavailable(JudgeError):
    """The store cannot count a request to the judge, so the request was not made."""

    error_type = "store_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A name under which spending is counted, and limits by period."""

    name: str
    limits: Mapping[Period, Limit]

    @property
    def limits_money(self) -> bool:
        """Whether a limit is in US dollars, so that all prices must be known."""
        return any(limit.usd_nano is not None for limit in self.limits.values())

    def windows(self, now_ns: int) -> tuple[BudgetWindow, ...]:
        """Return the windows that hold a moment, one for each period with a limit."""
        return tuple(period.window(now_ns) for period in self.limits)

    def refusal(
        self, spent: Mapping[BudgetWindow, Spend], estimate: Spend, *, share: float = 1.0
    ) -> ExceededLimit | None:
        """Return the limit that forbids a request; if there are several, the one that lasts longest.

        A request larger than a whole limit passes if nothing was spent yet, because else it would never be
        made.

        Args:
            spent: What was spent in each of the windows.
            estimate: What the request will cost at most.
            share: The share of each limit that this request may use, from 0 to 1.
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
    """What was spent of a budget in the windows of a moment."""

    budget: Budget
    spent: Mapping[BudgetWindow, Spend]
    """It includes requests under way, by their estimates."""

    def left(self) -> tuple[LimitUsage, ...]:
        """Return what is spent and left under each limit, in the order of the periods."""
        return tuple(
            LimitUsage(limit=f"{window.period}_{name}", spent=amount, most=most, resets_ns=window.end_ns)
            for window, spent in self.spent.items()
            for name, most, amount in self.budget.limits[window.period].pairs(spent)
        )

    def share_to_sample(self, now_ns: int) -> float:
        """Return the share of traffic, from 0 to 1, with which the budget lasts for the window.

        It falls if spending runs ahead of the clock, and is 0 when nothing is left. Minutes don't count:
        waiting for the next minute loses nothing.
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
