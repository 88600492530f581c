"""A crew judges answers side by side, and asks the store once for all its free hands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ragtrace.model import Sample
from ragtrace_collector.evaluate.workers import WorkerPool
from ragtrace_collector.store.records import Job
from ragtrace_collector.telemetry.counters import Counters


@dataclass(slots=True, kw_only=True)
class Work:
    """Answers that wait, and what is asked and done about them."""

    waiting: list[Job]
    asked_for: list[int] = field(default_factory=list)
    begun: list[Job] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    counters: Counters = field(default_factory=Counters)
    failing: bool = False

    async def take(self, most: int) -> Sequence[Job]:
        self.asked_for.append(most)
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        return taken

    async def judge(self, job: Job) -> None:
        self.begun.append(job)
        await self.may_end.wait()
        if self.failing:
            raise RuntimeError("a hand that fails")

    def worker_pool(self, most: int, workers: asyncio.TaskGroup) -> WorkerPool:
        return WorkerPool(
            most=most,
            take=self.take,
            judge=self.judge,
            workers=workers,
            wake=self.wake,
            counters=self.counters,
        )


def jobs(number: int, *, crashes: int = 0) -> list[Job]:
    sample = Sample(rule="ratio", rate=1.0, probability=1.0)
    return [Job(trace_id=f"t{n}", span_id="s", sample=sample, crashes=crashes) for n in range(number)]


async def test_the_store_is_asked_once_for_all_hands_and_not_while_none_is_free() -> None:
    work = Work(waiting=jobs(5))
    async with asyncio.TaskGroup() as workers:
        worker_pool = work.worker_pool(3, workers)
        assert not await worker_pool.step()
        assert not await worker_pool.step()
        await asyncio.sleep(0)
        assert (work.asked_for, len(work.begun)) == ([3], 3)
        work.may_end.set()


async def test_a_hand_that_is_free_again_has_what_waited_looked_for() -> None:
    work = Work(waiting=jobs(5))
    async with asyncio.TaskGroup() as workers:
        worker_pool = work.worker_pool(3, workers)
        await worker_pool.step()
        work.may_end.set()
        await work.wake.wait()
        await worker_pool.step()
    assert len(work.begun) == 5


async def test_where_nothing_waits_nobody_looks_again_until_there_is_something_new() -> None:
    work = Work(waiting=jobs(2))
    work.may_end.set()
    async with asyncio.TaskGroup() as workers:
        assert not await work.worker_pool(3, workers).step()
    assert (len(work.begun), work.wake.is_set()) == (2, False)


async def test_after_an_answer_that_is_judged_alone_the_next_is_looked_for() -> None:
    work = Work(waiting=jobs(1, crashes=1))
    work.may_end.set()
    async with asyncio.TaskGroup() as workers:
        await work.worker_pool(3, workers).step()
    assert work.wake.is_set()


async def test_a_hand_that_fails_is_counted_and_harms_no_other() -> None:
    work = Work(waiting=jobs(2), failing=True)
    work.may_end.set()
    async with asyncio.TaskGroup() as workers:
        await work.worker_pool(2, workers).step()
    assert (len(work.begun), work.counters.snapshot()["stage_errors"]) == (2, 2)
