"""What every work store promises of the budget: a request is counted before it is made, or is not made."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ragtrace.budget import Budget, ExceededLimit, Limit, Period, Reservation, Spend
from ragtrace_collector.store.store import Store
from tests.stores.place import Place

MINUTE: Final = 60 * 1_000_000_000
DAY: Final = 1440 * MINUTE
NOON: Final = int(datetime(2026, 2, 27, 12, 0, 30, tzinfo=UTC).timestamp()) * 1_000_000_000
ONE: Final = Spend(calls=1)


def budget(name: str = "live", **limits: Limit) -> Budget:
    return Budget(name=name, limits={Period(period): limit for period, limit in limits.items()})


async def spent(store: Store, of: Budget, *, now_ns: int = NOON) -> list[int]:
    return [usage.spent for usage in (await store.budget.status(of, now_ns=now_ns)).left()]


async def test_a_request_beyond_a_limit_is_refused_until_its_window_ends(store: Store) -> None:
    live = budget(day=Limit(calls=2))
    for _ in range(2):
        assert isinstance(await store.budget.reserve(live, ONE, now_ns=NOON), Reservation)
    refusal = await store.budget.reserve(live, ONE, now_ns=NOON)
    assert isinstance(refusal, ExceededLimit)
    assert refusal.limit == "day_calls"
    assert isinstance(await store.budget.reserve(live, ONE, now_ns=refusal.until_ns), Reservation)


async def test_requests_that_come_at_once_do_not_exceed_a_limit_together(store: Store) -> None:
    live = budget(minute=Limit(calls=7))
    answers = await asyncio.gather(*(store.budget.reserve(live, ONE, now_ns=NOON) for _ in range(20)))
    assert sum(isinstance(answer, Reservation) for answer in answers) == 7
    assert await spent(store, live) == [7]


async def test_a_request_larger_than_a_whole_limit_passes_alone(store: Store) -> None:
    live = budget(minute=Limit(tokens=100))
    large = Spend(calls=1, tokens=5_000)
    assert isinstance(await store.budget.reserve(live, large, now_ns=NOON), Reservation)
    assert isinstance(await store.budget.reserve(live, ONE, now_ns=NOON), ExceededLimit)


async def test_an_estimate_stays_counted_if_the_process_ends_before_the_cost_is_known(place: Place) -> None:
    live = budget(day=Limit(calls=10, tokens=100))
    first = await place.open()
    made = await first.budget.reserve(live, Spend(calls=1, tokens=60), now_ns=NOON)
    await first.aclose()
    second = await place.open()
    counted = await spent(second, live)
    assert isinstance(made, Reservation)
    await second.budget.settle(made, Spend(calls=1, tokens=10))
    corrected = await spent(second, live)
    await second.aclose()
    assert (counted, corrected) == ([1, 60], [1, 10])


class Spenders(RuleBasedStateMachine):
    """Several workers over one store: each may die with what it reserved, and the clock goes to and fro."""

    LIMITS: ClassVar = {Period.MINUTE: Limit(tokens=50, calls=4), Period.DAY: Limit(tokens=200)}

    @initialize()
    def open_store(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.place = Place(Path(self.folder.name) / "store.db")
        self.store = self.runner.run(self.place.open())
        self.budget = Budget(name="live", limits=self.LIMITS)
        self.now_ns = NOON
        self.under_way: list[Reservation] = []
        self.true: dict[tuple[Period, int], Spend] = {}
        self.largest = 0

    @rule(tokens=st.lists(st.integers(1, 70), min_size=1, max_size=3))
    def begin(self, tokens: list[int]) -> None:
        async def at_once() -> list[Reservation | ExceededLimit]:
            estimates = [Spend(calls=1, tokens=number) for number in tokens]
            reserving = (
                self.store.budget.reserve(self.budget, each, now_ns=self.now_ns) for each in estimates
            )
            return await asyncio.gather(*reserving)

        for answer in self.runner.run(at_once()):
            if isinstance(answer, Reservation):
                self.under_way.append(answer)
                self.largest = max(self.largest, answer.estimate.tokens)

    @precondition(lambda self: self.under_way)
    @rule(share=st.floats(0, 1))
    def end(self, share: float) -> None:
        reservation = self.under_way.pop(0)
        actual = Spend(calls=1, tokens=int(share * reservation.estimate.tokens))
        self.runner.run(self.store.budget.settle(reservation, actual))
        self._count(reservation, actual)

    @rule()
    def die(self) -> None:
        """Die after the requests were made, and before anybody could say what they took."""
        self.runner.run(self.store.aclose())
        self.store = self.runner.run(self.place.open())
        for reservation in self.under_way:
            self._count(reservation, reservation.estimate)
        self.under_way = []

    @rule(minutes=st.integers(-90, 90))
    def set_clock(self, minutes: int) -> None:
        self.now_ns += minutes * MINUTE

    def _count(self, reservation: Reservation, actual: Spend) -> None:
        for window in reservation.windows:
            key = (window.period, window.start_ns)
            self.true[key] = self.true.get(key, Spend()) + actual

    @invariant()
    def never_more_than_a_limit_or_one_request(self) -> None:
        for (period, _), amount in self.true.items():
            limit = self.LIMITS[period]
            assert limit.tokens is not None
            assert amount.tokens <= max(limit.tokens, self.largest)
            assert limit.calls is None or amount.calls <= limit.calls

    @invariant()
    def what_is_counted_is_the_truth_and_what_is_under_way(self) -> None:
        status = self.runner.run(self.store.budget.status(self.budget, now_ns=self.now_ns))
        for window, counted in status.spent.items():
            expected = self.true.get((window.period, window.start_ns), Spend())
            for reservation in self.under_way:
                expected += reservation.estimate if window in reservation.windows else Spend()
            assert counted == expected

    def teardown(self) -> None:
        self.runner.run(self.store.aclose())
        self.runner.close()
        self.folder.cleanup()


TestSpenders = pytest.mark.slow(Spenders.TestCase)
TestSpenders.settings = settings(stateful_step_count=15)
