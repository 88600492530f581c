"""The collector's stages: settle ready traces, judge the answers in them, deliver what came out.

Each stage reads from the store and writes to the store, so a crash between any two statements loses nothing:
what was not committed is done again, and the same input gives the same span ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ragtrace import semconv
from ragtrace.errors import (
    JudgeCompromised,
    JudgeCutOff,
    JudgeNonsense,
    JudgeUnable,
    SendRejected,
    SendRetryable,
)
from ragtrace.model import Evaluation, MetricFailure, RagRecord
from ragtrace.ports import Clock, SpanSink
from ragtrace.traces.attach import AttachOptions, carrier, deserves_carrier
from ragtrace.traces.extract import AttributeMapping, extract_records
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Trace
from ragtrace_collector.assemble import Assembly
from ragtrace_collector.judging import Judging
from ragtrace_collector.sampling import Sampler
from ragtrace_collector.store.port import Job, Outcome, Parcel, StoreUnavailable, WorkStore
from ragtrace_collector.telemetry import Counters, Counts

__all__ = ["AnswerReader", "Answers", "Deliverer", "Evaluator", "Settler", "Step", "run_stage"]

log = logging.getLogger("ragtrace.collector")

_LONGEST_BACK_OFF_S: Final = 60.0
_STORE_PAUSE_S: Final = 1.0
_FINAL_ERRORS: Final = frozenset(
    error.error_type for error in (JudgeNonsense, JudgeCutOff, JudgeUnable, JudgeCompromised)
)
"""Asking again would give the same: the judge answered, and not usably."""
_MOST_PARTIAL: Final = 1_000


Step = Callable[[], Awaitable[bool]]
"""One turn of a stage; says whether it found work."""


async def run_stage(
    step: Step, *, wake: asyncio.Event, stop: asyncio.Event, pause_s: float, counters: Counters
) -> None:
    """Call ``step`` until ``stop`` is set: at once while it finds work, else when woken or after a pause.

    A turn that fails (a full disk, say) is counted and told, and does not end the stage.
    """
    while not stop.is_set():
        wake.clear()
        try:
            found_work = await step()
        except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item
            counters.add(Counts.STAGE_ERRORS)
            log.error("%s: %s", step.__qualname__, _place(exc))  # noqa: TRY400 -- its text may quote content
            found_work = False
        if not found_work:
            await _first_of(wake, stop, timeout_s=pause_s)


async def _first_of(*events: asyncio.Event, timeout_s: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the store holds of a trace, and the RAG answers in it."""

    trace: Trace
    records: tuple[RagRecord, ...]

    def of(self, span_id: str) -> RagRecord | None:
        """Return the answer on this span, or ``None``."""
        return next((each for each in self.records if each.target and each.target.span_id == span_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReader:
    """Reads stored traces, in a thread: a large one takes seconds, and senders must not wait for them."""

    store: WorkStore
    counters: Counters
    mapping: AttributeMapping | None = None
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two evaluators with answers of one trace would take it apart at the same time, instead of once."""

    async def read(self, trace_id: str) -> Answers:
        """Assemble a trace and find its answers. One whose spans cannot be read has none."""
        payloads = await self.store.payloads(trace_id)
        async with self._one:
            try:
                return await asyncio.to_thread(_answers, trace_id, payloads, self.mapping)
            except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item: strangers' spans
                self.counters.add(Counts.STAGE_ERRORS)
                log.error("trace %s: its spans could not be read: %s", trace_id, _place(exc))  # noqa: TRY400
                return Answers(trace=Trace(trace_id=trace_id, spans=()), records=())


@lru_cache(maxsize=4)
def _answers(trace_id: str, payloads: tuple[bytes, ...], mapping: AttributeMapping | None) -> Answers:
    # cached: the answers of a trace are judged one after the other, and each needs the whole trace
    trace = Trace.of(trace_id, (span for payload in payloads for span in decode(payload)))
    return Answers(trace=trace, records=extract_records(trace, mapping).records)


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
        jobs = [
            Job(trace_id=trace_id, span_id=record.target.span_id, sample=sample)
            for record in records
            if sample and record.target
        ]
        left_out = [
            Outcome(span_id=record.target.span_id, outcome="sampled_out")
            for record in records
            if not sample and record.target
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


class PartialEvaluations:
    """What was found about answers whose other metrics are tried again: it need not be judged twice.

    In memory alone, and bounded: what is lost here is judged again, and nothing else is lost.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Evaluation] = {}

    def keep(self, job: Job, evaluation: Evaluation) -> None:
        """Keep an evaluation in which some metrics found something."""
        if evaluation.results:
            self._kept[job.trace_id, job.span_id] = evaluation
            while len(self._kept) > _MOST_PARTIAL:
                del self._kept[next(iter(self._kept))]

    def take(self, job: Job) -> Evaluation | None:
        """Return what was kept for this answer, and forget it."""
        return self._kept.pop((job.trace_id, job.span_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Judges queued answers. Several run at once; each takes one job at a time."""

    store: WorkStore
    reader: AnswerReader
    judging: Judging
    attach: AttachOptions
    sinks: tuple[str, ...]
    retry_delays_ns: tuple[int, ...]
    counters: Counters
    clock: Clock
    done: asyncio.Event
    """Set when there is something new to deliver."""
    partial: PartialEvaluations = field(default_factory=PartialEvaluations)

    async def step(self) -> bool:
        """Judge the next due answer; say whether there was one."""
        jobs = await self.store.take_jobs(1, now_ns=self.clock.now_ns())
        for job in jobs:
            try:
                await self._judge(job)
            except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item
                await self._give_up(job, exc)
        return bool(jobs)

    async def _judge(self, job: Job) -> None:
        record = (await self.reader.read(job.trace_id)).of(job.span_id)
        if record is None:
            # Spans that came after the job was queued moved the answer elsewhere; that span has its own job.
            await self._end(job, "superseded")
            return
        evaluation = await self.judging.evaluate(record, clock=self.clock, earlier=self.partial.take(job))
        if self._should_try_again(job, evaluation):
            await self._postpone(job, evaluation)
            return
        await self._finish(job, record, evaluation)

    def _should_try_again(self, job: Job, evaluation: Evaluation) -> bool:
        failures = evaluation.failures
        mendable = any(_is_mendable(failure) for failure in failures)
        return mendable and job.attempts <= len(self.retry_delays_ns)

    async def _postpone(self, job: Job, evaluation: Evaluation) -> None:
        failure = next(each for each in evaluation.failures if _is_mendable(each))
        self.partial.keep(job, evaluation)
        due_ns = self.clock.now_ns() + self.retry_delays_ns[job.attempts - 1]
        await self._write(lambda: self.store.postpone(job, due_ns=due_ns, reason=failure.error_type))
        self.counters.add(Counts.ANSWERS_POSTPONED)
        log.warning(
            "judge failed (%s: %s); answer %s:%s is tried again in %.0f s",
            failure.error_type,
            failure.message,
            job.trace_id,
            job.span_id,
            self.retry_delays_ns[job.attempts - 1] / 1e9,
        )

    async def _finish(self, job: Job, record: RagRecord, evaluation: Evaluation) -> None:
        if not deserves_carrier(evaluation):
            await self._end(job, _outcome(evaluation))
            return
        span = carrier(
            evaluation,
            record,
            sample=job.sample,
            options=self.attach,
            now_ns=self.clock.now_ns(),
            cost_usd=self.judging.cost_usd(evaluation),
        )
        await self._end(job, _outcome(evaluation), payload=encode([span]))

    async def _end(self, job: Job, outcome: str, *, payload: bytes | None = None) -> None:
        parcels = dict.fromkeys(self.sinks, payload) if payload else {}
        now_ns = self.clock.now_ns()
        await self._write(lambda: self.store.finish(job, outcome, parcels=parcels, now_ns=now_ns))
        self.counters.add(_COUNTED_AS.get(outcome.partition(":")[0], Counts.ANSWERS_JUDGED))
        self.done.set()

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write until it is written: what was judged is not judged twice because a disk was full."""
        while True:
            try:
                return await write()
            except StoreUnavailable as exc:
                self.counters.add(Counts.STAGE_ERRORS)
                log.error("a judged answer waits: %s", exc)  # noqa: TRY400 -- no news in the traceback
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _give_up(self, job: Job, exc: Exception) -> None:
        # The exception's text may quote what is under judgment: its type and place are enough.
        self.counters.add(Counts.STAGE_ERRORS)
        log.error("answer %s:%s: %s", job.trace_id, job.span_id, _place(exc))
        await self._end(job, f"failed:{type(exc).__name__}")


_COUNTED_AS: Final = {
    "ineligible": Counts.ANSWERS_INELIGIBLE,
    "failed": Counts.ANSWERS_FAILED,
    "superseded": Counts.ANSWERS_INELIGIBLE,
}


@dataclass(slots=True, kw_only=True)
class Deliverer:
    """Takes parcels from the outbox to one sink, in order, until the sink has them."""

    store: WorkStore
    sink: SpanSink
    endpoint: str
    """The sink's name in the outbox."""
    counters: Counters
    clock: Clock
    most_at_once: int = 64
    most_bytes: int = 2 << 20
    _failures: int = 0
    """Deliveries that failed since the last one that did not."""
    _resume_ns: int = 0

    async def step(self) -> bool:
        """Deliver what is waiting; say whether more may be."""
        if self.clock.now_ns() < self._resume_ns:
            return False
        waiting = await self.store.parcels(self.endpoint, self.most_at_once, most_bytes=self.most_bytes)
        return bool(waiting) and await self._deliver(waiting)

    async def _deliver(self, batch: Sequence[Parcel]) -> bool:
        # Serialized protobuf messages of one type, put one after the other, are their merge.
        payload = b"".join(parcel.payload for parcel in batch)
        try:
            await self.sink.send(payload)
        except SendRetryable as exc:
            self._back_off(exc)
            return False
        except SendRejected as exc:
            if not exc.partial or len(batch) == 1:
                return await self._isolate(batch, exc)
            # it does not say which of the parcels, and what it took must not be sent again
            self.counters.add(Counts.DELIVERIES_PARTIAL)
            log.error("%s took a part only: %s", self.sink.name, exc)  # noqa: TRY400 -- the answer says it all
        await self.store.delivered(batch)
        self._failures = 0
        self.counters.add(Counts.PARCELS_DELIVERED, len(batch))
        return True

    async def _isolate(self, batch: Sequence[Parcel], exc: SendRejected) -> bool:
        """One bad span must not take its neighbours along: deliver each alone."""
        if len(batch) > 1:
            for parcel in batch:
                if not await self._deliver([parcel]):
                    return False
            return True
        await self.store.reject(batch, reason=str(exc), now_ns=self.clock.now_ns())
        self.counters.add(Counts.PARCELS_REJECTED)
        log.error("%s refused spans for good: %s", self.sink.name, exc)
        return True

    def _back_off(self, exc: SendRetryable) -> None:
        delay_s = exc.retry_after_s if exc.retry_after_s is not None else 0.5 * 2**self._failures
        self._resume_ns = self.clock.now_ns() + int(min(delay_s, _LONGEST_BACK_OFF_S) * 1e9)
        if self._failures == 0:
            log.warning("%s does not take spans (%s); they are kept and sent later", self.sink.name, exc)
        self._failures = min(self._failures + 1, 10)
        self.counters.add(Counts.DELIVERIES_FAILED)


def _is_mendable(failure: MetricFailure) -> bool:
    """Say whether asking the judge again may help: not where it answered, nor where a metric is broken."""
    return failure.error_type.startswith("judge_") and failure.error_type not in _FINAL_ERRORS


def _outcome(evaluation: Evaluation) -> str:
    if any(result.score is not None for result in evaluation.results):
        return "judged"
    if evaluation.failures:
        return f"failed:{evaluation.failures[0].error_type}"
    return f"ineligible:{evaluation.results[0].skip_reason}"


def _is_whole(trace: Trace) -> bool:
    spans = [span for span in trace.spans if semconv.FEEDBACK_NAME not in span.attributes]
    seen = {span.span_id for span in spans}
    parents = {span.parent_span_id for span in spans}
    return None in parents and parents - {None} <= seen


def _place(exc: BaseException) -> str:
    frame = exc.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "?"
    return f"{type(exc).__name__} at {where}"
