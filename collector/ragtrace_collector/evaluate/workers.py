"""A worker pool: one dispatcher leases due answers, and the workers judge them concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ragtrace_collector.stage import report_stage_error
from ragtrace_collector.store.port import Job
from ragtrace_collector.telemetry.counters import Counters


class WorkerSlots:
    """How many answers a process judges at once, shared by the pools of its pipelines."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._pools = 0
        self._waiting: set[asyncio.Event] = set()
        """What wakes the pools that could have taken more."""

    def join(self) -> None:
        """Count a pool."""
        self._pools += 1

    def leave(self, wake: asyncio.Event) -> None:
        """Count a pool no more."""
        self._pools -= 1
        self._waiting.discard(wake)

    @property
    def has_free(self) -> bool:
        """Whether a worker is free."""
        return self._free > 0

    def reserve(self) -> int:
        """Take one pool's share of what is free, rounded up."""
        share = -(-self._free // max(1, self._pools))
        self._free -= share
        return share

    def give_back(self, number: int = 1) -> None:
        """Free some, and wake the pools that wait for them."""
        self._free += number
        if number:
            for wake in self._waiting:
                wake.set()
            self._waiting.clear()

    def wait(self, wake: asyncio.Event) -> None:
        """Set ``wake`` when some are free again."""
        self._waiting.add(wake)


class WorkerPool:
    """Gives due answers to free workers, with one query to the store for all of them."""

    def __init__(
        self,
        *,
        slots: WorkerSlots,
        take: Callable[[int], Awaitable[Sequence[Job]]],
        judge: Callable[[Job], Awaitable[None]],
        workers: asyncio.TaskGroup,
        wake: asyncio.Event,
        counters: Counters,
    ) -> None:
        self._slots = slots
        self._take = take
        self._judge = judge
        self._workers = workers
        self._wake = wake
        """Set when there are new answers to judge, or when a worker becomes free."""
        self._counters = counters

    async def step(self) -> bool:
        """Take as many answers as workers are free; say whether more may be taken at once."""
        jobs = await self._take_jobs(free := self._slots.reserve())
        for job in jobs:
            self._workers.create_task(self._work(job), name=f"evaluate-{job.trace_id}-{job.span_id}")
        if may_be_more := len(jobs) == free:
            self._slots.wait(self._wake)
        return may_be_more and self._slots.has_free

    async def _take_jobs(self, free: int) -> Sequence[Job]:
        jobs: Sequence[Job] = ()
        try:
            jobs = await self._take(free) if free else ()
        finally:
            self._slots.give_back(free - len(jobs))
        return jobs

    async def _work(self, job: Job) -> None:
        try:
            await self._judge(job)
        except Exception as exc:  # noqa: BLE001 -- one answer must not end the stage
            report_stage_error(exc, stage="evaluate", counters=self._counters)
        finally:
            self._slots.give_back()
            if job.crashes:  # a suspect is judged alone: the next answer may have waited for it
                self._wake.set()
