"""Answers judged side by side: one looks for those that are due, and as many hands as may be judge them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ragtrace_collector.stage import report_stage_error
from ragtrace_collector.store.port import Job
from ragtrace_collector.telemetry.counters import Counters


class WorkerPool:
    """Gives answers that are due to free hands. However many there are, the store is asked once for all."""

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
        """Set when there is something new to judge, or a hand is free for what waits."""
        self._counters = counters
        self._busy = 0
        self._may_be_more = False
        """Whether answers may be due that no hand was free for."""

    async def step(self) -> bool:
        """Take as many answers as hands are free; say whether more may be taken at once."""
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
        except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item
            report_stage_error(exc, stage="evaluate", counters=self._counters)
        finally:
            self._busy -= 1
            if (
                self._may_be_more or job.crashes
            ):  # such a one is judged alone: the next may have waited for it
                self._wake.set()
