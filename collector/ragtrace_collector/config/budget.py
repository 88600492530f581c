"""What judging may cost: the section ``budget``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ragtrace_collector.config.values import Section


class BudgetLimitConfig(Section):
    """What may be spent in one window."""

    calls: int | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    usd: float | None = Field(default=None, gt=0, lt=1e9, allow_inf_nan=False)


class BudgetPeriodsConfig(Section):
    """Limits by the length of their windows. All hold."""

    minute: BudgetLimitConfig = BudgetLimitConfig()
    day: BudgetLimitConfig = BudgetLimitConfig()
    month: BudgetLimitConfig = BudgetLimitConfig()


class BudgetConfig(Section):
    """What judging may cost, live and in back-fill, and what happens when it is spent."""

    live: BudgetPeriodsConfig = BudgetPeriodsConfig()
    backfill: BudgetPeriodsConfig = BudgetPeriodsConfig()
    at_limit: Literal["stop", "cheaper", "lower_rate"] = "stop"
    cheaper_from: float = Field(default=0.8, gt=0, lt=1)
