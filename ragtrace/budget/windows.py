"""Time windows of budgets: what may be spent in each, and whether one more request fits. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from ragtrace.budget.amounts import NANO, Limit, Spend

NEVER_NS: Final = 2**63 - 1
"""The end of a window that does not end."""
_AHEAD: Final = 0.1
"""How far spending may run ahead of the clock before nothing more is sampled, as a share of the limit."""


class Period(StrEnum):
    """How long a window is."""

    MINUTE = "minute"
    DAY = "day"
    MONTH = "month"
    RUN = "run"
    """From the beginning of a run to its end, however often it is interrupted."""

    def window(self, now_ns: int) -> BudgetWindow:
        """Return the window of this length that holds a moment. Windows follow UTC."""
        now = datetime.fromtimestamp(now_ns // NANO, UTC).replace(second=0)
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
            case Period.RUN:
                return BudgetWindow(period=self, start_ns=0, end_ns=NEVER_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWindow:
    """One minute, day, month or run in Unix nanoseconds; the end is exclusive."""

    period: Period
    start_ns: int
    end_ns: int

    @property
    def ends(self) -> bool:
        """Whether another window follows, so that waiting helps."""
        return self.end_ns < NEVER_NS

    def elapsed(self, now_ns: int) -> float:
        """Return the share of the window that is over, from 0 to 1."""
        return min(1.0, max(0.0, (now_ns - self.start_ns) / (self.end_ns - self.start_ns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceededLimit:
    """A limit that a request would exceed. Its amounts are calls, tokens or billionths of a dollar."""

    limit: str
    """``day_usd``: the period and the unit."""
    until_ns: int
    """When its window ends."""
    spent: int
    most: int
    wanted: int
    """What the request may take."""

    @property
    def is_final(self) -> bool:
        """Whether no window follows in which the request would fit."""
        return self.until_ns >= NEVER_NS


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

    def exceeded_limit(
        self, spent: Mapping[BudgetWindow, Spend], estimate: Spend, *, share: float = 1.0
    ) -> ExceededLimit | None:
        """Return the limit that forbids a request; if there are several, the one that lasts longest.

        A request larger than a whole limit passes if nothing was spent yet in a window that ends, because
        else it would never be made.

        Args:
            spent: What was spent in each of the windows.
            estimate: What the request will cost at most.
            share: The share of each limit that this request may use, from 0 to 1.
        """
        found = [
            ExceededLimit(
                limit=f"{window.period}_{unit}",
                until_ns=window.end_ns,
                spent=before.part(unit),
                most=limit.part(unit) or 0,
                wanted=estimate.part(unit),
            )
            for window, before in spent.items()
            if (before != Spend() or not window.ends)
            and (unit := (limit := self.limits[window.period]).exceeded_by(before + estimate, share=share))
        ]
        return max(found, key=lambda exceeded: exceeded.until_ns, default=None)


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
            LimitUsage(
                limit=f"{window.period}_{unit}", spent=spent.part(unit), most=most, resets_ns=window.end_ns
            )
            for window, spent in self.spent.items()
            for unit, most in self.budget.limits[window.period].parts()
        )

    def share_to_sample(self, now_ns: int) -> float:
        """Return the share of traffic, from 0 to 1, with which the budget lasts for the window.

        It falls if spending runs ahead of the clock, and is 0 when nothing is left. Only days and months
        count: waiting for the next minute loses nothing, and a run has no clock.
        """
        shares = (
            _share(self.budget.limits[window.period].used(spent), window.elapsed(now_ns))
            for window, spent in self.spent.items()
            if window.period in (Period.DAY, Period.MONTH)
        )
        return min(shares, default=1.0)


def _share(used: float, elapsed: float) -> float:
    on_pace = 1 - (used - elapsed) / _AHEAD
    lasting = (1 - used) / max(1 - elapsed, 1e-9)
    return min(1.0, max(0.0, on_pace)) * min(1.0, max(0.0, lasting))


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * NANO
