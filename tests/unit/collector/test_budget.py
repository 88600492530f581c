"""The budget: no interleaving of requests, crashes, restarts and clocks spends more than its limits."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ragtrace.budget import (
    Budget,
    BudgetStatus,
    CostEstimator,
    ExceededLimit,
    Limit,
    Period,
    Price,
    Reservation,
    Spend,
)
from ragtrace.model import Usage
from ragtrace_collector.store.budget import reserve, settle, status
from ragtrace_collector.store.sqlite import SCHEMA

MINUTE: Final = 60 * 1_000_000_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000_000


NOON: Final = ns("2026-02-27T12:00:30")


@pytest.fixture
def db() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    return connection


def budget(**limits: Limit) -> Budget:
    return Budget(name="live", limits={Period(name): limit for name, limit in limits.items()})


ONE = Spend(calls=1)


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


def test_what_exceeds_a_limit_is_refused_until_its_window_ends(db: sqlite3.Connection) -> None:
    live = budget(day=Limit(calls=2))
    for _ in range(2):
        assert isinstance(reserve(db, live, ONE, now_ns=NOON), Reservation)
    assert reserve(db, live, ONE, now_ns=NOON) == ExceededLimit(
        limit="day_calls", until_ns=ns("2026-02-28"), spent=2, most=2, wanted=1
    )
    assert isinstance(reserve(db, live, ONE, now_ns=NOON + DAY), Reservation)


def test_a_refusal_names_the_limit_that_lasts_longest(db: sqlite3.Connection) -> None:
    live = budget(minute=Limit(calls=1), month=Limit(calls=1))
    reserve(db, live, ONE, now_ns=NOON)
    refusal = reserve(db, live, ONE, now_ns=NOON)
    assert isinstance(refusal, ExceededLimit)
    assert refusal.limit == "month_calls"


def test_a_request_larger_than_a_whole_limit_passes_alone_in_its_window(db: sqlite3.Connection) -> None:
    live = budget(minute=Limit(tokens=100))
    large = Spend(calls=1, tokens=5_000)
    assert isinstance(reserve(db, live, large, now_ns=NOON), Reservation)
    assert isinstance(reserve(db, live, ONE, now_ns=NOON), ExceededLimit)


def test_what_was_spent_less_than_estimated_can_be_spent_by_others(db: sqlite3.Connection) -> None:
    live = budget(day=Limit(usd_nano=100))
    first = reserve(db, live, Spend(calls=1, usd_nano=90), now_ns=NOON)
    assert isinstance(first, Reservation)
    settle(db, first, Spend(calls=1, usd_nano=10))
    assert isinstance(reserve(db, live, Spend(calls=1, usd_nano=90), now_ns=NOON), Reservation)


def test_a_request_is_settled_in_the_window_in_which_it_was_made(db: sqlite3.Connection) -> None:
    live = budget(minute=Limit(tokens=100))
    made = reserve(db, live, Spend(tokens=80), now_ns=NOON)
    assert isinstance(made, Reservation)
    settle(db, made, Spend(tokens=50))
    (before,) = status(db, live, now_ns=NOON).left()
    (after,) = status(db, live, now_ns=NOON + MINUTE).left()
    assert (before.spent, after.spent) == (50, 0)


def test_a_clock_set_forward_and_back_forgets_nothing(db: sqlite3.Connection) -> None:
    live = budget(minute=Limit(calls=1), day=Limit(calls=1))
    reserve(db, live, ONE, now_ns=NOON)
    reserve(db, live, ONE, now_ns=NOON + 900 * DAY)
    assert isinstance(reserve(db, live, ONE, now_ns=NOON), ExceededLimit)


def test_old_windows_are_forgotten_some_day(db: sqlite3.Connection) -> None:
    live = budget(day=Limit(calls=1))
    for day in range(500):
        reserve(db, live, ONE, now_ns=NOON + day * DAY)
    (rows,) = db.execute("SELECT count(*) FROM spent").fetchone()
    assert rows == 400


@given(used=st.floats(0, 1), elapsed=st.floats(0, 1))
def test_the_share_to_sample_is_one_on_pace_and_none_at_the_limit(used: float, elapsed: float) -> None:
    most = 10**9
    window = Period.DAY.window(NOON)
    now_ns = window.start_ns + int(elapsed * DAY)
    spent = {window: Spend(tokens=round(used * most))}
    share = BudgetStatus(budget=budget(day=Limit(tokens=most)), spent=spent).share_to_sample(now_ns)
    assert 0 <= share <= 1
    assert share == 0 or used < 1
    if used < elapsed - 1e-6:
        assert share == pytest.approx(1)


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


def test_a_judge_that_takes_more_than_estimated_is_estimated_higher_from_then_on() -> None:
    cost_estimator, largest = CostEstimator(price=None), Usage(calls=1, input_tokens=60, output_tokens=40)
    first = cost_estimator.estimate(largest)
    cost_estimator.actual(Usage(calls=2, input_tokens=120, output_tokens=180), first)
    assert (first.tokens, cost_estimator.estimate(largest).tokens) == (100, 300)


def test_where_the_endpoint_does_not_say_what_it_took_the_estimate_counts() -> None:
    cost_estimator = CostEstimator(price=Price(input=1.0, output=2.0))
    estimate = cost_estimator.estimate(Usage(calls=1, input_tokens=1000, output_tokens=500))
    assert estimate == Spend(calls=1, tokens=1500, usd_nano=2_000_000)
    assert cost_estimator.actual(Usage(calls=1), estimate) == estimate
    assert cost_estimator.actual(Usage(), estimate) == Spend()


class Workers(RuleBasedStateMachine):
    """Several workers over one file: each may die with what it reserved, and the clock goes to and fro."""

    LIMITS: Final = {Period.MINUTE: Limit(tokens=50, calls=4), Period.DAY: Limit(tokens=200)}

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(name="live", limits=self.LIMITS)
        self.db = sqlite3.connect(":memory:")
        self.now_ns = NOON
        self.under_way: list[list[Reservation]] = [[], [], []]
        self.true: dict[tuple[Period, int], Spend] = {}
        self.largest = Spend()

    @initialize()
    def make(self) -> None:
        self.db.executescript(SCHEMA)

    @rule(worker=st.integers(0, 2), tokens=st.integers(1, 70))
    def begin(self, worker: int, tokens: int) -> None:
        answer = reserve(self.db, self.budget, Spend(calls=1, tokens=tokens), now_ns=self.now_ns)
        if isinstance(answer, Reservation):
            self.under_way[worker].append(answer)
            self.largest = Spend(calls=1, tokens=max(self.largest.tokens, tokens))

    @precondition(lambda self: any(self.under_way))
    @rule(worker=st.integers(0, 2), share=st.floats(0, 1))
    def end(self, worker: int, share: float) -> None:
        if self.under_way[worker]:
            reservation = self.under_way[worker].pop(0)
            actual = Spend(calls=1, tokens=int(share * reservation.estimate.tokens))
            settle(self.db, reservation, actual)
            self._count(reservation, actual)

    @rule(worker=st.integers(0, 2))
    def die(self, worker: int) -> None:
        """Die after the requests were made, and before anybody could say what they took."""
        for reservation in self.under_way[worker]:
            self._count(reservation, reservation.estimate)
        self.under_way[worker] = []

    @rule(minutes=st.integers(-90, 90))
    def set_clock(self, minutes: int) -> None:
        self.now_ns += minutes * MINUTE

    def _count(self, reservation: Reservation, actual: Spend) -> None:
        for window in reservation.windows:
            key = (window.period, window.start_ns)
            self.true[key] = self.true.get(key, Spend()) + actual

    @invariant()
    def never_more_than_a_limit_and_one_reservation(self) -> None:
        for (period, _), spent in self.true.items():
            limit = self.LIMITS[period]
            assert limit.tokens is not None
            assert spent.tokens <= max(limit.tokens, self.largest.tokens)
            assert limit.calls is None or spent.calls <= limit.calls


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(stateful_step_count=40)
