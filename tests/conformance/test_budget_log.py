"""The spend ledger over a log: the laws of every ledger, and what processes that share a log promise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ragtrace.budget import Budget, BudgetUnavailable, ExceededLimit, Limit, Period, Reservation, Spend
from ragtrace_collector.store.budget_log.ledger import LoggedBudget
from ragtrace_collector.store.budget_log.records import CheckpointRecord, decode_record
from ragtrace_collector.store.budget_log.replica import BudgetReplica
from ragtrace_collector.store.port import StoreUnavailable
from tests.conformance.test_store_budget import (
    Spenders,
    test_a_clock_set_forward_and_back_finds_what_it_spent,
    test_a_request_beyond_a_limit_is_refused_until_its_window_ends,
    test_a_request_larger_than_a_whole_limit_passes_alone,
    test_a_request_that_is_refused_is_counted_in_no_window,
    test_a_share_of_the_limits_leaves_the_rest_to_others,
    test_an_estimate_stays_counted_if_the_process_ends_before_the_cost_is_known,
    test_budgets_of_two_names_are_apart,
    test_requests_that_come_at_once_do_not_exceed_a_limit_together,
    test_the_actual_cost_counts_in_the_window_of_the_request,
)
from tests.stores.memory_log import MemoryLog, MemoryLogEnd

__all__ = [
    "test_a_clock_set_forward_and_back_finds_what_it_spent",
    "test_a_request_beyond_a_limit_is_refused_until_its_window_ends",
    "test_a_request_larger_than_a_whole_limit_passes_alone",
    "test_a_request_that_is_refused_is_counted_in_no_window",
    "test_a_share_of_the_limits_leaves_the_rest_to_others",
    "test_an_estimate_stays_counted_if_the_process_ends_before_the_cost_is_known",
    "test_budgets_of_two_names_are_apart",
    "test_requests_that_come_at_once_do_not_exceed_a_limit_together",
    "test_the_actual_cost_counts_in_the_window_of_the_request",
]

MINUTE: Final = 60 * 1_000_000_000
NOON: Final = int(datetime(2026, 2, 27, 12, 0, 30, tzinfo=UTC).timestamp()) * 1_000_000_000
ONE: Final = Spend(calls=1)
LIVE: Final = Budget(name="live", limits={Period.DAY: Limit(calls=10)})
NOTHING_ELSE_HAPPENS: Final = 1 << 20


@dataclass(slots=True)
class LogStore:
    """A store that is a budget only."""

    budget: LoggedBudget

    async def aclose(self) -> None:
        await self.budget.aclose()


class LogPlace:
    """A log that outlives the processes; a `tests.stores.adapters.Place` for the budget."""

    def __init__(self) -> None:
        self.log = MemoryLog()

    @classmethod
    def of(cls, folder: Path) -> LogPlace:
        return cls()

    async def open(self) -> LogStore:
        return LogStore(await opened(self.log))


async def opened(log: MemoryLog, *, checkpoint_every: int = 3) -> LoggedBudget:
    budget = LoggedBudget(budget_log=log.open(), checkpoint_every=checkpoint_every)
    await budget.open(wait_s=NOTHING_ELSE_HAPPENS if log.is_prompt and not log.is_away else 0)
    return budget


@pytest.fixture
def place() -> LogPlace:
    return LogPlace()


@pytest.fixture
async def store(place: LogPlace) -> AsyncIterator[LogStore]:
    store = await place.open()
    yield store
    await store.aclose()


class SpendersOverALog(Spenders):
    KIND = LogPlace  # type: ignore[assignment]  # a store that is a budget only


TestSpendersOverALog = SpendersOverALog.TestCase
TestSpendersOverALog.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)


def calls(budget: LoggedBudget, of: Budget = LIVE) -> int:
    """Return what the first limit of a budget counts, as this process knows it."""
    return replica_of(budget).spend.spent(of, of.windows(NOON)[0]).calls


async def soon() -> None:
    """Let all that is due on the loop happen."""
    for _ in range(8):
        await asyncio.sleep(0)


async def test_processes_share_the_limits() -> None:
    log = MemoryLog()
    budgets = [await opened(log) for _ in range(3)]
    reserving = [budget.reserve(LIVE, ONE, now_ns=NOON) for budget in budgets for _ in range(5)]
    answers = await asyncio.gather(*reserving)
    assert sum(isinstance(answer, Reservation) for answer in answers) == 10
    statuses = [await budget.status(LIVE, now_ns=NOON) for budget in budgets]
    assert [status.left()[0].spent for status in statuses] == [10] * 3


async def test_a_request_that_its_caller_gave_up_does_not_stay_counted() -> None:
    log = MemoryLog(is_prompt=False)
    budget = await opened(log)
    (end,) = log.ends
    end.deliver()
    reserving = asyncio.create_task(budget.reserve(LIVE, ONE, now_ns=NOON))
    await soon()
    reserving.cancel()
    await asyncio.wait([reserving])
    end.deliver(1)
    assert calls(budget) == 1
    end.deliver()
    assert calls(budget) == 0


async def test_a_caller_that_is_cancelled_at_the_moment_of_the_answer_gives_it_back() -> None:
    log = MemoryLog(is_prompt=False)
    budget = await opened(log)
    (end,) = log.ends
    end.deliver()
    reserving = asyncio.create_task(budget.reserve(LIVE, ONE, now_ns=NOON))
    await soon()
    end.deliver()
    reserving.cancel()
    await asyncio.wait([reserving])
    assert reserving.cancelled()
    end.deliver()
    assert calls(budget) == 0


async def test_a_request_that_is_granted_too_late_is_not_made_and_not_counted() -> None:
    log = MemoryLog(is_prompt=False)
    budget = LoggedBudget(budget_log=log.open(), timeout_s=0.01)
    await budget.open(wait_s=0)
    (end,) = log.ends
    end.deliver()
    with pytest.raises(BudgetUnavailable, match="did not answer within"):
        await budget.reserve(LIVE, ONE, now_ns=NOON)
    end.deliver(1)
    assert calls(budget) == 1
    end.deliver()
    assert calls(budget) == 0


async def test_a_record_that_is_written_twice_counts_once() -> None:
    log = MemoryLog()
    budget = await opened(log)
    made = await budget.reserve(LIVE, Spend(calls=3), now_ns=NOON)
    assert isinstance(made, Reservation)
    await budget.settle(made, ONE)
    for entry in list(log.entries):
        log.append(entry.value)
    await soon()
    assert calls(budget) == calls(await opened(log)) == 1


async def test_a_settlement_that_was_lost_is_sent_again_with_its_number() -> None:
    log = MemoryLog()
    budget = await opened(log)
    made = await budget.reserve(LIVE, Spend(calls=3), now_ns=NOON)
    assert isinstance(made, Reservation)
    log.is_away = True
    settling = asyncio.create_task(budget.settle(made, ONE))
    await soon()
    log.is_away = False
    await settling  # a second later
    assert calls(budget) == 1


async def test_a_lost_reservation_is_refused_and_a_lost_settlement_is_sent_again() -> None:
    log = MemoryLog(is_prompt=False)
    budget = await opened(log)
    (end,) = log.ends
    end.deliver()
    reserving = asyncio.create_task(budget.reserve(LIVE, Spend(calls=3), now_ns=NOON))
    await soon()
    budget.lose(1, "the client ended")
    with pytest.raises(BudgetUnavailable, match="the client ended"):
        await reserving
    end.deliver(1)  # it was in the log all the same: it is settled at zero
    budget.lose(2, "the client ended")
    log.is_prompt = True
    end.notice()
    await soon()
    assert calls(budget) == 0


async def test_without_the_log_nothing_is_reserved_and_what_was_spent_is_still_known() -> None:
    log = MemoryLog()
    budget = await opened(log)
    await budget.reserve(LIVE, ONE, now_ns=NOON)
    log.is_away = True
    with pytest.raises(BudgetUnavailable, match="the judge is not asked"):
        await budget.reserve(LIVE, ONE, now_ns=NOON)
    budget.tell("connection refused")
    assert budget.trouble == "the log of the budget cannot be used: connection refused"
    with pytest.raises(BudgetUnavailable, match="connection refused"):
        await budget.reserve(LIVE, ONE, now_ns=NOON)
    assert (await budget.status(LIVE, now_ns=NOON)).left()[0].spent == 1
    log.is_away = False
    budget.tell(None)
    assert isinstance(await budget.reserve(LIVE, ONE, now_ns=NOON), Reservation)


async def test_before_the_log_was_read_nothing_is_reserved_and_nothing_known() -> None:
    log = MemoryLog(is_prompt=False)
    log.append(b"one record")
    budget = await opened(log)
    with pytest.raises(BudgetUnavailable):
        await budget.reserve(LIVE, ONE, now_ns=NOON)
    with pytest.raises(StoreUnavailable):
        await budget.status(LIVE, now_ns=NOON)
    log.ends[0].deliver()
    assert isinstance((await budget.status(LIVE, now_ns=NOON)).left(), tuple)


async def test_a_newer_release_stops_the_older_ones(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(is_prompt=False)
    budget = await opened(log)
    (end,) = log.ends
    end.deliver()
    log.append(b'{"ragtrace_budget":2,"kind":"reserve"}')
    reserving = asyncio.create_task(budget.reserve(LIVE, ONE, now_ns=NOON))
    await soon()
    end.deliver()
    with pytest.raises(BudgetUnavailable, match="upgrade"):
        await reserving
    with pytest.raises(BudgetUnavailable, match="upgrade"):
        await budget.reserve(LIVE, ONE, now_ns=NOON)
    with pytest.raises(StoreUnavailable, match="upgrade"):
        await budget.status(LIVE, now_ns=NOON)
    assert caplog.text.count("upgrade") == 1


async def test_what_others_write_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    for _ in range(3):
        log.append(b"garbage")
    budget = await opened(log)
    log.append(None)
    await soon()
    assert budget.counts.skipped == 4
    assert caplog.text.count("ragtrace did not write") == 1
    assert isinstance(await budget.reserve(LIVE, ONE, now_ns=NOON), Reservation)


def checkpoints(log: MemoryLog) -> list[CheckpointRecord]:
    found = (decode_record(entry.value) for entry in log.entries)
    return [record for record in found if isinstance(record, CheckpointRecord)]


async def test_what_is_before_the_last_checkpoint_but_one_is_deleted() -> None:
    log = MemoryLog()
    budget = await opened(log, checkpoint_every=5)
    large = Budget(name="live", limits={Period.DAY: Limit(calls=1_000)})
    for _ in range(40):
        await budget.reserve(large, ONE, now_ns=NOON)
    await soon()
    assert len(checkpoints(log)) == 2
    assert log.first == checkpoints(log)[0].as_of == 35 + 6
    late = await opened(log, checkpoint_every=5)
    assert late.trouble is None
    assert calls(late, large) == 40


async def test_a_log_without_its_beginning_and_a_checkpoint_counts_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemoryLog()
    old = await opened(log, checkpoint_every=3)
    await old.reserve(LIVE, ONE, now_ns=NOON)
    log.delete_before(1)
    new = await opened(log, checkpoint_every=3)
    with pytest.raises(BudgetUnavailable, match=r"retention\.ms"):
        await new.reserve(LIVE, ONE, now_ns=NOON)
    assert "delete the topic" in caplog.text
    for _ in range(2):  # who was there before writes a checkpoint
        await old.reserve(LIVE, ONE, now_ns=NOON)
    await soon()
    assert new.trouble is None
    assert calls(new) == 3


async def test_a_process_that_lags_behind_a_deletion_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(is_prompt=False)
    fast, slow = await opened(log, checkpoint_every=2), await opened(log, checkpoint_every=2)
    for end in log.ends:
        end.deliver()
    waiting = asyncio.create_task(slow.reserve(LIVE, ONE, now_ns=NOON))
    await soon()
    for _ in range(6):
        reserving = asyncio.create_task(fast.reserve(LIVE, ONE, now_ns=NOON))
        await soon()
        log.ends[0].deliver()
        await reserving
    log.ends[0].deliver()
    assert log.first > 0
    log.ends[1].deliver()
    with pytest.raises(BudgetUnavailable, match="deleted before it was read"):
        await waiting
    assert slow.trouble is None
    assert calls(slow) == calls(fast) == 7
    assert "read from its beginning again" in caplog.text


async def test_a_checkpoint_that_differs_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    log, elsewhere = MemoryLog(), MemoryLog()
    budget = await opened(log, checkpoint_every=2)
    for shared, tokens in ((log, 1), (elsewhere, 2)):
        process = await opened(shared, checkpoint_every=2)
        for _ in range(2):
            await process.reserve(LIVE, Spend(calls=1, tokens=tokens), now_ns=NOON)
    await soon()
    assert budget.counts.divergent == 0
    log.append(next(entry.value for entry in elsewhere.entries if entry.offset == 2))
    await soon()
    assert budget.counts.divergent == 1
    assert logging.ERROR in [record.levelno for record in caplog.records if "differs" in record.message]
    assert calls(budget) == 2


async def test_closing_refuses_who_waits() -> None:
    log = MemoryLog(is_prompt=False)
    budget = await opened(log)
    log.ends[0].deliver()
    reserving = asyncio.create_task(budget.reserve(LIVE, ONE, now_ns=NOON))
    await soon()
    await budget.aclose()
    with pytest.raises(BudgetUnavailable, match="closed"):
        await reserving
    with pytest.raises(BudgetUnavailable, match="closed"):
        await budget.reserve(LIVE, ONE, now_ns=NOON)


async def test_a_clock_far_behind_the_others_is_refused() -> None:
    log = MemoryLog()
    minutes = Budget(name="live", limits={Period.DAY: Limit(calls=1)})
    budget = await opened(log, checkpoint_every=1_000)
    days = [NOON + day * 1_440 * MINUTE for day in range(401)]
    await asyncio.gather(*(budget.reserve(minutes, ONE, now_ns=day) for day in days))
    with pytest.raises(BudgetUnavailable, match="clock"):
        await budget.reserve(minutes, ONE, now_ns=NOON)


class ProcessesOverALog(RuleBasedStateMachine):
    """Processes that reserve, lag, give up, die and begin anew, over a log whose beginning is deleted."""

    LIMITS: Final = {Period.MINUTE: Limit(tokens=50, calls=4), Period.DAY: Limit(tokens=120)}

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.log = MemoryLog(is_prompt=False)
        self.budget = Budget(name="live", limits=self.LIMITS)
        self.now_ns = NOON
        self.processes: list[LoggedBudget] = []
        self.waiting: list[tuple[LoggedBudget, asyncio.Task[Reservation | ExceededLimit]]] = []
        self.under_way: list[tuple[LoggedBudget, Reservation]] = []
        self.granted: dict[tuple[Period, int], Spend] = {}
        """What the requests that were made took, by estimate if nobody can say it."""
        self.start()

    def run(self, work: Callable[[], object]) -> None:
        async def on_loop() -> None:
            work()
            await soon()

        self.runner.run(on_loop())
        self._collect()

    @rule()
    @precondition(lambda self: len(self.processes) < 4)
    def start(self) -> None:
        async def start() -> LoggedBudget:
            budget = await opened(self.log, checkpoint_every=3)
            end_of(budget).deliver()
            return budget

        budget = self.runner.run(start())
        assert budget.trouble is None
        self.processes.append(budget)

    @rule(which=st.integers(0, 3), tokens=st.lists(st.integers(1, 50), min_size=1, max_size=3))
    def reserve(self, which: int, tokens: list[int]) -> None:
        process = self.processes[which % len(self.processes)]

        def work() -> None:
            for each in tokens:
                asking = process.reserve(self.budget, Spend(calls=1, tokens=each), now_ns=self.now_ns)
                self.waiting.append((process, asyncio.ensure_future(asking)))

        self.run(work)

    @rule(which=st.integers(0, 3), most=st.integers(1, 6))
    def deliver(self, which: int, most: int) -> None:
        end = end_of(self.processes[which % len(self.processes)])
        self.run(lambda: end.deliver(most))

    @rule(share=st.floats(0, 1))
    @precondition(lambda self: self.under_way)
    def settle(self, share: float) -> None:
        process, reservation = self.under_way.pop(0)
        actual = Spend(calls=1, tokens=int(share * reservation.estimate.tokens))
        self._count(reservation, actual - reservation.estimate)
        self.run(lambda: asyncio.ensure_future(process.settle(reservation, actual)))

    @rule(which=st.integers(0, 9))
    @precondition(lambda self: self.waiting)
    def give_up(self, which: int) -> None:
        _, task = self.waiting[which % len(self.waiting)]
        self.run(task.cancel)

    @rule(which=st.integers(0, 3))
    @precondition(lambda self: len(self.processes) > 1)
    def die(self, which: int) -> None:
        """Die: nobody hears of the answers, and what it was granted stays counted."""
        process = self.processes.pop(which % len(self.processes))
        self.log.ends.remove(end_of(process))
        end_of(process)._is_closed = True
        dead = [task for owner, task in self.waiting if owner is process]
        self.waiting = [each for each in self.waiting if each[0] is not process]
        self.under_way = [each for each in self.under_way if each[0] is not process]
        self.run(lambda: [task.cancel() for task in dead])

    @rule(place=st.integers(0, 1 << 20))
    @precondition(lambda self: self.log.entries)
    def write_again(self, place: int) -> None:
        self.log.append(self.log.entries[place % len(self.log.entries)].value)

    @rule()
    def write_garbage(self) -> None:
        self.log.append(b"garbage")

    @rule(minutes=st.integers(-2, 2))
    def set_clock(self, minutes: int) -> None:
        self.now_ns += minutes * MINUTE

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        for (period, _), spend in self.granted.items():
            assert self.LIMITS[period].exceeded_by(spend) is None

    def teardown(self) -> None:
        for _ in range(30):  # until all have read what the others wrote
            for process in self.processes:
                self.run(end_of(process).deliver)
        states = {replica_of(process).encode_state() for process in self.processes}
        assert len(states) == 1
        assert {process.counts.divergent for process in self.processes} == {0}
        replica = replica_of(self.processes[0])
        for (period, start_ns), spend in self.granted.items():
            counted = replica.spend.spent(self.budget, period.window(start_ns))
            assert counted.tokens >= spend.tokens
        for process in self.processes:
            self.runner.run(process.aclose())
        self.runner.close()

    def _collect(self) -> None:
        for process, task in [each for each in self.waiting if each[1].done()]:
            self.waiting.remove((process, task))
            if task.cancelled() or task.exception() is not None:
                continue
            if isinstance(answer := task.result(), Reservation):
                self.under_way.append((process, answer))
                self._count(answer, answer.estimate)

    def _count(self, reservation: Reservation, amount: Spend) -> None:
        for window in reservation.windows:
            key = (window.period, window.start_ns)
            self.granted[key] = self.granted.get(key, Spend()) + amount


def end_of(process: LoggedBudget) -> MemoryLogEnd:
    end = process.budget_log
    assert isinstance(end, MemoryLogEnd)
    return end


def replica_of(process: LoggedBudget) -> BudgetReplica:
    replica = process._replica
    assert replica is not None
    return replica


TestProcessesOverALog = pytest.mark.slow(ProcessesOverALog.TestCase)
TestProcessesOverALog.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
