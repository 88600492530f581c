"""A worker pool: one dispatcher leases due answers, and the workers judge them concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ragtrace_collector.stage import report_stage_error
from ragtrace_collector.store.records import Job
from ragtrace_collector.telemetry.counters import Counters


class WorkerPool:
    """Gives due answers to free workers, with one query to the store for all of them."""

    def __init__(
        self,
        *,
        most: Callable[[], int],
        take: Callable[[int], Awaitable[Sequence[Job]]],
        judge: Callable[[Job], Awaitable[None]],
        workers: asyncio.TaskGroup,
        wake: asyncio.Event,
        counters: Counters,
    ) -> None:
        """Judge at most so many answers at once, which may change."""
        self._most = most
        self._busy = 0
        self._has_more = False
        """Whether answers may be due that no worker was free for."""
        self._take = take
        self._judge = judge
        self._workers = workers
        self._wake = wake
        """Set when there are new answers to judge, or when a worker becomes free."""
        self._counters = counters

    async def step(self) -> bool:
        """Take as many answers as workers are free; say whether more may be taken at once."""
        free = max(0, self._most() - self._busy)
        self._busy += free
        jobs: Sequence[Job] = ()
        try:
            jobs = await self._take(free) if free else ()
        finally:
            self._busy -= free - len(jobs)
        for job in jobs:
            self._workers.create_task(self._work(job), name=f"evaluate-{job.trace_id}-{job.span_id}")
        self._has_more = len(jobs) == free
        return self._has_more and self._busy < self._most()

    async def _work(self, job: Job) -> None:
        try:
            await self._judge(job)
        except Exception as exc:  # noqa: BLE001 -- one answer must not end the stage
            report_stage_error(exc, stage="evaluate", counters=self._counters)
        finally:
            self._busy -= 1
            if self._has_more or job.crashes:  # a suspect is judged alone: the next may have waited for it
                self._wake.set()
