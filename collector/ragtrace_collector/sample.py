"""Sample ready traces: queue their answers for evaluation, or sample them out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.model import RagRecord
from ragtrace.pipeline import suspicion_of
from ragtrace.ports import Clock
from ragtrace.traces.attach import record_sha256
from ragtrace.traces.trace import Trace
from ragtrace_collector.assemble import AnswerReader, Assembly, Quarantine, QuarantineCheck, Ready
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.judge import Live, LiveConfig
from ragtrace_collector.ledger import FinalOutcome, State
from ragtrace_collector.sampling import RATE_LIMIT, Decision, EarlierDecision, Sampler
from ragtrace_collector.store.records import (
    Job,
    QuarantineReason,
    StoreUnavailable,
    TraceDecided,
    trace_id_of,
)
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.tracing import NO_TRACER, working


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStage:
    """Decides about each ready trace: its answers are queued or sampled out."""

    store: Store
    reader: AnswerReader
    assembly: Assembly
    quarantine: Quarantine
    live: LiveConfig
    counters: Counters
    clock: Clock
    queued: asyncio.Event
    """Set when there is something new to judge."""
    tracer: Tracer = NO_TRACER
    most_at_once: int = 64
    """Number of traces in one commit."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def sampler(self) -> Sampler:
        """The sampler of the live configuration."""
        return self.live.now.sampler

    async def recall(self, sampler: Sampler) -> None:
        """Restore in a new sampler the counts that the store has."""
        now_ns = self.clock.now_ns()
        sampler.restore(await self.store.sampling.load(), now_ns=now_ns)
        sampler.learn(await self.store.sampling.sums(now_ns=now_ns))

    async def step(self, *, everything: bool = False) -> bool:
        """Decide about the traces that are ready now; say whether there were any.

        The ids are on disk before the traces are read, so that a trace that crashes the process is found.
        Steps follow each other: the last one, of a collector that stops, ends after the one under way.
        """
        async with self._turn:
            recalled = await self._recall_spans()
            ready = tuple(self.assembly.take_ready(everything=everything))
            for first in range(0, len(ready), self.most_at_once):
                rest = first + self.most_at_once
                failed = await self._process_batch(ready[first:rest])
                if failed:
                    for each in (*failed, *ready[rest:]):
                        self.assembly.put_back(each)
                    raise next(iter(failed.values()))
            return bool(ready) or recalled

    async def _recall_spans(self) -> bool:
        """Read the stored spans of traces that were reopened, or opened by an earlier process."""
        reopened = self.assembly.reopened(self.most_at_once)
        if not reopened:
            return False
        look = await self._begin(reopened)
        for trace_id in look.together:
            self.assembly.recall(trace_id, await self.reader.refs(trace_id))
        await self.quarantine.end(look.together)
        alone = [each for each in look.alone if await self._recall_alone(each)]
        return bool(look.together or look.set_aside or alone)

    async def _recall_alone(self, trace_id: str) -> bool:
        if not await self.store.look_alone(trace_id):
            return False
        self.assembly.recall(trace_id, await self.reader.refs(trace_id))
        await self.quarantine.end((trace_id,))
        return True

    async def _process_batch(self, batch: Sequence[Ready]) -> Mapping[Ready, Exception]:
        """Decide about traces, and return those that failed."""
        try:
            look = await self._begin([each.trace_id for each in batch])
            failed = await self._attempts([each for each in batch if each.trace_id in set(look.together)])
            for each in batch:
                if each.trace_id in look.alone:
                    failed.update(await self._process_one(each))
        except StoreUnavailable as exc:
            return dict.fromkeys(batch, exc)
        except asyncio.CancelledError:
            await self.quarantine.end([each.trace_id for each in batch])
            raise
        if failed:
            await self.quarantine.end([each.trace_id for each in failed])
        return failed

    async def _begin(self, trace_ids: Sequence[str]) -> QuarantineCheck:
        look = await self.quarantine.begin(trace_ids)
        for trace_id in (*look.set_aside, *look.elsewhere):
            self.assembly.drop(trace_id)
        return look

    async def _attempts(self, batch: Sequence[Ready]) -> dict[Ready, Exception]:
        async with asyncio.TaskGroup() as tasks:
            attempts = {each: tasks.create_task(self._attempt(each)) for each in batch}
        return {each: exc for each, task in attempts.items() if (exc := task.result())}

    async def _process_one(self, ready: Ready) -> Mapping[Ready, Exception]:
        if await self.store.look_alone(ready.trace_id):
            return await self._attempts([ready])
        self.assembly.put_back(ready)  # another suspect is being read or judged
        return {}

    async def _attempt(self, ready: Ready) -> Exception | None:
        """Decide about a trace, or return the error, so that other traces go on."""
        try:
            with working(self.tracer, "settle") as span:
                span.set_attribute("ragtrace.trace_id", trace_id_of(ready.trace_id))
                await self._process(ready, self.live.now)
            self.assembly.settled(ready)
        except Exception as exc:  # noqa: BLE001 -- the stage reports it
            return exc
        return None

    async def _process(self, ready: Ready, live: Live) -> None:
        trace_id = ready.trace_id
        answers = await self.reader.read(trace_id, live.rules)
        trace = answers.trace
        begun_ns = time.thread_time_ns()
        records = answers.of_calls(ready.calls) if ready.calls else answers.records
        digests = {each.target.span_id: record_sha256(each) for each in records if each.target}
        moved = answers.moved()
        if ready.calls:  # of the others, spans are still to come
            moved = {gone: successor for gone, successor in moved.items() if successor in digests}
        if answers.cpu_ns + time.thread_time_ns() - begun_ns > nanoseconds(live.config.assemble.max_cpu):
            await self.quarantine.set_aside(trace_id, QuarantineReason.CPU)
            self.assembly.drop(trace_id)
            return
        known = await self.store.sampling.statuses(trace_id) if records and answers.stored.has_jobs else {}
        decisions = await self._decide(live.sampler, trace, records, known)
        jobs = [
            _job(trace_id, each, record_sha256=digests[each.span_id], live=live)
            for each in decisions
            if not each.left_out
        ]
        left_out = [each for each in decisions if each.left_out]
        may_be_brought_back = bool(left_out) and live.sampler.plan.awaits_feedback
        settled = await self.store.decide_trace(
            trace_id,
            jobs=jobs,
            outcomes=left_out,
            # a trace without an answer may get one from late spans of another service
            keep_spans=bool(jobs) or may_be_brought_back or not (records and ready.is_complete),
            now_ns=self.clock.now_ns(),
            slices=answers.stored.slices,
            moved=moved,
            goes_on=bool(ready.calls),
            feedback=answers.feedback(),
            unread=answers.unread,
        )
        self.counters.add(Counts.TRACES_PROCESSED, not ready.calls)
        self.counters.add(Counts.TRACES_WITHOUT_RAG, not records and not ready.calls)
        self._count(settled, [each.left_out for each in decisions if each.span_id not in known])
        if settled.queued or settled.revised:
            self.queued.set()

    def _count(self, settled: TraceDecided, of_new: Sequence[str | None]) -> None:
        self.counters.add(Counts.ANSWERS_REVISED, settled.revised)
        self.counters.add(Counts.ANSWERS_MOVED, settled.moved)
        self.counters.add(Counts.ANSWERS_QUEUED, settled.queued)
        self.counters.add(Counts.ANSWERS_BROUGHT_BACK, settled.brought_back)
        for outcome in filter(None, of_new):
            self.counters.add(_COUNTED_AS[FinalOutcome.of(outcome).state])

    async def _decide(
        self,
        sampler: Sampler,
        trace: Trace,
        records: Sequence[RagRecord],
        known: Mapping[str, EarlierDecision],
    ) -> tuple[Decision, ...]:
        suspicions = await _suspicions(records) if sampler.plan.suspicion else {}
        if sampler.roll(now_ns := self.clock.now_ns()):
            sampler.learn(await self.store.sampling.sums(now_ns=now_ns))
        decisions = sampler.decide(
            trace, records, known=known, suspicions=suspicions, now_ns=self.clock.now_ns()
        )
        if not (changes := sampler.take_changes()):
            return decisions
        refused = await self.store.sampling.save(changes)
        sampler.give_back(refused)
        spans = {place.span_id for place in refused}
        return tuple(
            replace(each, left_out=RATE_LIMIT) if each.span_id in spans else each for each in decisions
        )


async def _suspicions(records: Sequence[RagRecord]) -> dict[str, float]:
    """Screen answers, and return what was found by their spans."""
    found = {each.target.span_id: await suspicion_of(each) for each in records if each.target}
    return {span_id: suspicion for span_id, suspicion in found.items() if suspicion is not None}


_COUNTED_AS: Final = {
    State.SAMPLED_OUT: Counts.ANSWERS_SAMPLED_OUT,
    State.FILTERED: Counts.ANSWERS_FILTERED,
    State.SHED: Counts.ANSWERS_SHED,
}


def _job(trace_id: str, decision: Decision, *, record_sha256: str, live: Live) -> Job:
    return Job(
        trace_id=trace_id,
        span_id=decision.span_id,
        sample=decision.sample,
        tenant=decision.tenant,
        service=decision.service,
        record_sha256=record_sha256,
        revisions_left=live.config.assemble.max_revisions,
    )
