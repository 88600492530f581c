"""A worker pool: one dispatcher leases due answers, and the workers judge them concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ragtrace_collector.stage import report_stage_error
from ragtrace_collector.store.port import Job
from ragtrace_collector.telemetry.counters import Counters


class WorkerPool:
    """Gives due answers to free workers, with one query to the store for all of them."""

    def __init__(
        self,
        *,
        most: int,
        take: Callable[[int], Awaitable[Sequence[Job]]],
        judge: Callable[[Job], Awaitable[None]],
        workers: asyncio.TaskGroup,
        wake: asyncio.Event,
        counters: Counters,
    ) -> None:
        self._most = most
        self._take = take
        self._judge = judge
        self._workers = workers
        self._wake = wake
        """Set when there are new answers to judge, or when a worker becomes free."""
        self._counters = counters
        self._busy = 0
        self._may_be_more = False
        """Whether answers may be due for which no worker was free."""

    async def step(self) -> bool:
        """Take as many answers as workers are free; say whether more may be taken at once."""
        free = self._most - self._busy
        jobs = await self._take(free) if free else ()
        self._busy += len(jobs)
        for job in jobs:
            self._workers.create_task(self._work(job), name=f"evaluate-{job.trace_id}-{job.span_id}")
        self._may_be_more = len(jobs) == free
        return self._may_be_more and self._busy < self._most

    async def _work(self, job: Job) -> None:
        try:
            await self._judge(job)
        except Exception as exc:  # noqa: BLE001 -- one answer must not end the stage
            report_stage_error(exc, stage="evaluate", counters=self._counters)
        finally:
            self._busy -= 1
            if (
                self._may_be_more or job.crashes
            ):  # a crash suspect is judged alone: the next answer may have waited for it
                self._wake.set()
