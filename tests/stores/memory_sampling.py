"""The state of sampling and the spend ledger of the store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ragtrace.budget import Budget, BudgetStatus, BudgetWindow, ExceededLimit, Reservation, Spend
from ragtrace.budget.reserve import reserve, settle, status
from ragtrace_collector.sampling.follow_up import LowAnswer
from ragtrace_collector.sampling.sampler import EarlierDecision, SamplingChanges
from ragtrace_collector.sampling.windows import WindowRow
from ragtrace_collector.store.port import Job, RelatedAnswer
from tests.stores.memory_state import MemoryState, stored


class MemoryBudget:
    """A `ragtrace.budget.SpendLedger`; as a `ragtrace.budget.SpendTable`, it is the one transaction."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def reserve(
        self, budget: Budget, estimate: Spend, *, now_ns: int, share: float = 1.0
    ) -> Reservation | ExceededLimit:
        await asyncio.sleep(0)
        return reserve(self, budget, estimate, now_ns=now_ns, share=share)

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        await asyncio.sleep(0)
        settle(self, reservation, actual)

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        await asyncio.sleep(0)
        return status(self, budget, now_ns=now_ns)

    def spent(self, budget: Budget, window: BudgetWindow) -> Spend:
        return self._state.spent.get((budget.name, window.period, window.start_ns), Spend())

    def add(self, budget: Budget, window: BudgetWindow, amount: Spend) -> None:
        key = (budget.name, window.period, window.start_ns)
        self._state.spent[key] = self._state.spent.get(key, Spend()) + amount


class MemorySampling:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def load(self, *, now_ns: int) -> tuple[tuple[WindowRow, ...], tuple[LowAnswer, ...]]:
        await asyncio.sleep(0)
        active = [replace(low) for low in self._state.low.values() if low.until_ns > now_ns]
        return tuple(self._state.windows.values()), tuple(sorted(active, key=lambda low: low.until_ns))

    async def statuses(self, trace_id: str) -> Mapping[str, EarlierDecision]:
        await asyncio.sleep(0)
        return {
            answer.span_id: EarlierDecision(answer.outcome, answer.sample)
            for answer in self._state.of_trace(trace_id)
            if not answer.is_superseded
        }

    async def save(self, changes: SamplingChanges) -> None:
        await asyncio.sleep(0)
        windows = self._state.windows
        windows.update({(row.period, row.start_ns, row.tenant): row for row in changes.windows})
        for horizon in changes.horizons:
            for key in [key for key in windows if key[0] == horizon.period]:
                if not horizon.first_ns <= key[1] <= horizon.last_ns:
                    del windows[key]
        self._state.left_out |= {
            (key, answer.seen_ns, answer.trace_id, answer.span_id)
            for answer in changes.left_out_answers
            for key in answer.keys
        }
        for low in changes.low:
            if known := self._state.low.get((low.trace_id, low.span_id)):
                known.remaining = low.remaining

    async def candidates(self, keys: Sequence[str], *, limit: int) -> tuple[RelatedAnswer, ...]:
        await asyncio.sleep(0)
        found = {answer for key in keys for answer in self._with_key(key, limit)}
        return tuple(sorted(found, reverse=True)[:limit])

    async def select_related(self, low: LowAnswer, jobs: Sequence[Job], *, now_ns: int) -> int:
        await asyncio.sleep(0)
        state = self._state
        for ended in [known for known in state.low.values() if known.until_ns <= now_ns]:
            del state.low[ended.trace_id, ended.span_id]
        state.low.setdefault((low.trace_id, low.span_id), replace(low))
        selected = {(job.trace_id, job.span_id) for job in jobs}
        state.left_out = {entry for entry in state.left_out if entry[2:] not in selected}
        return sum(select_follow_up(state, job, now_ns=now_ns) for job in jobs)

    def _with_key(self, key: str, limit: int) -> Sequence[RelatedAnswer]:
        entries = sorted((entry[1:] for entry in self._state.left_out if entry[0] == key), reverse=True)
        return [
            RelatedAnswer(seen_ns, trace_id, span_id, answer.tenant)
            for seen_ns, trace_id, span_id in entries[:limit]
            if (answer := self._state.answers.get((trace_id, span_id)))
            and answer.outcome == "sampled_out"
            and self._state.slices.get(trace_id)
        ]


def select_follow_up(state: MemoryState, job: Job, *, now_ns: int) -> bool:
    """Queue an answer that was sampled out; say whether it was."""
    answer = state.answers.get((job.trace_id, job.span_id))
    if answer is None or answer.outcome != "sampled_out":
        return False
    state.put(
        replace(
            answer,
            sample=stored(job.sample),
            state="queued",
            seen_ns=now_ns,
            due_ns=now_ns,
            ended_ns=None,
            outcome="",
        )
    )
    return True
