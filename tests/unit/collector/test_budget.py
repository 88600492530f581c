"""The budget: its windows, what a refusal names, what is forgotten, and the share to sample."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest

from ragtrace.budget import (
    Budget,
    BudgetStatus,
    Limit,
    Period,
    Spend,
)

MINUTE: Final = 60 * 1_000_000_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000_000


NOON: Final = ns("2026-02-27T12:00:30")


def budget(**limits: Limit) -> Budget:
    return Budget(name="live", limits={Period(name): limit for name, limit in limits.items()})


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        (Period.MINUTE, "2026-02-27T12:00:00", "2026-02-27T12:01:00"),
        (Period.DAY, "2026-02-27T00:00:00", "2026-02-28T00:00:00"),
        (Period.MONTH, "2026-02-01T00:00:00", "2026-03-01T00:00:00"),
    ],
)
def test_windows_begin_where_utc_does(period: Period, start: str, end: str) -> None:
    window = period.window(NOON)
    assert (window.start_ns, window.end_ns) == (ns(start), ns(end))
    assert period.window(window.end_ns).start_ns == window.end_ns


@pytest.mark.parametrize("demand", [1.5, 4, 20])
def test_with_the_share_to_sample_the_spending_keeps_to_the_clock_and_uses_most_of_the_limit(
    demand: float,
) -> None:
    live, most, steps = budget(day=Limit(tokens=1_000_000)), 1_000_000, 1440
    window = Period.DAY.window(NOON)
    spent = 0.0
    for step in range(steps):
        now_ns = window.start_ns + step * DAY // steps
        standing_now = BudgetStatus(budget=live, spent={window: Spend(tokens=int(spent))})
        spent += standing_now.share_to_sample(now_ns) * demand * most / steps
        if step < 0.9 * steps:
            assert spent < most
        assert spent / most <= window.elapsed(now_ns) + 0.1 + demand / steps
    assert spent > 0.9 * most
