"""Amounts, the limits of them, and the time windows in which they hold. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

NANO: Final = 1_000_000_000
"""Amounts of money are in billionths of a US dollar."""
_UNITS: Final = {"calls": "calls", "tokens": "tokens", "usd": "usd_nano"}
"""The units, by the words that messages, metrics and the configuration have for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount in integers, so that sums are exact."""

    calls: int = 0
    tokens: int = 0
    """Tokens of prompts and replies."""
    usd_nano: int = 0
    """Billionths of a US dollar, less than the price of the cheapest token."""

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            usd_nano=self.usd_nano + other.usd_nano,
        )

    def __sub__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls - other.calls,
            tokens=self.tokens - other.tokens,
            usd_nano=self.usd_nano - other.usd_nano,
        )

    def part(self, unit: str) -> int:
        """Return the amount in one unit: ``calls``, ``tokens`` or ``usd``."""
        part: int = getattr(self, _UNITS[unit])
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limits of a budget in one window; ``None`` is unlimited."""

    calls: int | None = None
    tokens: int | None = None
    usd_nano: int | None = None

    @classmethod
    def of(cls, *, calls: int | None, tokens: int | None, usd: float | None) -> Limit:
        """Make limits, of which money is in US dollars."""
        return cls(calls=calls, tokens=tokens, usd_nano=None if usd is None else round(usd * NANO))

    def part(self, unit: str) -> int | None:
        """Return the limit in one unit: ``calls``, ``tokens`` or ``usd``."""
        part: int | None = getattr(self, _UNITS[unit])
        return part

    def parts(self) -> list[tuple[str, int]]:
        """Return the units that are limited, with their limits."""
        return [(unit, most) for unit in _UNITS if (most := self.part(unit)) is not None]

    def exceeded_by(self, spend: Spend) -> str | None:
        """Return the unit of which an amount exceeds the limit, if any."""
        return next((unit for unit, most in self.parts() if spend.part(unit) > most), None)

    def used(self, spend: Spend) -> float:
        """Return the largest share of a limit that an amount uses, 0 without limits."""
        shares = (spend.part(unit) / most if most else 1.0 for unit, most in self.parts())
        return max(shares, default=0.0)


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

    def exceeded_limit(self, spent: Mapping[BudgetWindow, Spend], estimate: Spend) -> ExceededLimit | None:
        """Return the limit that forbids a request; if there are several, the one that lasts longest.

        A request larger than a whole limit passes if nothing was spent yet in a window that ends, because
        else it would never be made.

        Args:
            spent: What was spent in each of the windows.
            estimate: What the request will cost at most.
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
            and (unit := (limit := self.limits[window.period]).exceeded_by(before + estimate))
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
