"""Ready traces: their answers are queued for judgment, sampled out, or there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ragtrace import semconv
from ragtrace.model import Target
from ragtrace.ports import Clock
from ragtrace.traces.trace import Trace
from ragtrace_collector.answers import AnswerReader
from ragtrace_collector.assemble import Assembly
from ragtrace_collector.outcomes import State
from ragtrace_collector.sampling import Sampler
from ragtrace_collector.store.port import Job, Outcome, WorkStore
from ragtrace_collector.telemetry import Counters, Counts

__all__ = ["Settler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settler:
    """Decides what becomes of each ready trace: its answers are queued, sampled out, or there are none."""

    store: WorkStore
    reader: AnswerReader
    assembly: Assembly
    sampler: Sampler
    counters: Counters
    clock: Clock
    queued: asyncio.Event
    """Set when there is something new to judge."""
    most_at_once: int = 64
    """Traces that share a commit."""

    async def step(self, *, everything: bool = False) -> bool:
        """Settle the traces that are ready now; say whether there were any."""
        ready = tuple(self.assembly.take_ready(self.clock.now_ns(), everything=everything))
        for first in range(0, len(ready), self.most_at_once):
            rest = first + self.most_at_once
            async with asyncio.TaskGroup() as tasks:
                attempts = {each: tasks.create_task(self._attempt(each)) for each in ready[first:rest]}
            failed = {trace_id: exc for trace_id, task in attempts.items() if (exc := task.result())}
            if failed:
                self._put_back([*failed, *ready[rest:]])
                raise next(iter(failed.values()))
        return bool(ready)

    async def _attempt(self, trace_id: str) -> Exception | None:
        """Settle a trace, or say why that could not be: its neighbours must not be interrupted."""
        try:
            await self._settle(trace_id)
        except Exception as exc:  # noqa: BLE001 -- handed to the wall of the stage
            return exc
        return None

    def _put_back(self, trace_ids: Sequence[str]) -> None:
        """Open traces again whose settling could not be written, to be tried after a quiet period."""
        for trace_id in trace_ids:
            self.assembly.add(trace_id, (), arrived_ns=self.clock.now_ns(), reopened=True)

    async def _settle(self, trace_id: str) -> None:
        answers = await self.reader.read(trace_id)
        trace, records = answers.trace, answers.records
        sample = self.sampler.decide(trace) if records else None
        targets = [record.target for record in records if record.target]
        jobs = [
            Job(trace_id=trace_id, span_id=target.span_id, sample=sample, service=_service(target))
            for target in targets
            if sample
        ]
        left_out = [
            Outcome(span_id=target.span_id, outcome=State.SAMPLED_OUT, service=_service(target))
            for target in targets
            if not sample
        ]
        awaits_feedback = bool(left_out) and self.sampler.awaits_feedback
        settled = await self.store.settle(
            trace_id,
            jobs=jobs,
            outcomes=left_out,
            keep_spans=bool(jobs) or awaits_feedback or not _is_whole(trace),
            now_ns=self.clock.now_ns(),
        )
        self.counters.add(Counts.TRACES_SETTLED)
        self.counters.add(Counts.TRACES_WITHOUT_RAG, not records)
        self.counters.add(Counts.ANSWERS_QUEUED, settled.queued)
        self.counters.add(Counts.ANSWERS_SAMPLED_OUT, settled.ended)
        self.counters.add(Counts.ANSWERS_BROUGHT_BACK, settled.brought_back)
        if settled.queued:
            self.queued.set()


def _service(target: Target) -> str:
    return str(target.resource.get(semconv.SERVICE_NAME, ""))


def _is_whole(trace: Trace) -> bool:
    spans = [span for span in trace.spans if semconv.FEEDBACK_NAME not in span.attributes]
    seen = {span.span_id for span in spans}
    parents = {span.parent_span_id for span in spans}
    return None in parents and parents - {None} <= seen
