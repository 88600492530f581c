"""Queued answers: judged, tried again later, or ended with a reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from ragtrace.errors import (
    JudgeCompromised,
    JudgeCutOff,
    JudgeNonsense,
    JudgeUnable,
)
from ragtrace.model import Evaluation, MetricFailure, RagRecord
from ragtrace.ports import Clock
from ragtrace.traces.additions import encode_addition
from ragtrace.traces.attach import AttachOptions, addition_of, carrier, deserves_carrier
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.answers import AnswerReader
from ragtrace_collector.bringing_back import LowScoreWatch
from ragtrace_collector.judging import Judging
from ragtrace_collector.outcomes import State
from ragtrace_collector.stages import place_of
from ragtrace_collector.store.port import Job, Judged, StoreUnavailable, WorkStore
from ragtrace_collector.telemetry import Counters, Counts

__all__ = ["Evaluator", "PartialEvaluations"]

log = logging.getLogger("ragtrace.collector")

T = TypeVar("T")

_STORE_PAUSE_S: Final = 1.0
_FINAL_ERRORS: Final = frozenset(
    error.error_type for error in (JudgeNonsense, JudgeCutOff, JudgeUnable, JudgeCompromised)
)
"""Asking again would give the same: the judge answered, and not usably."""
_MOST_PARTIAL: Final = 1_000


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
    watch: LowScoreWatch
    attach: AttachOptions
    sinks: tuple[str, ...]
    retry_delays_ns: tuple[int, ...]
    counters: Counters
    clock: Clock
    done: asyncio.Event
    """Set when there is something new to deliver."""
    holds: bool = False
    """Whether traces may be held, and answer spans get their scores themselves."""
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
        answers = await self.reader.read(job.trace_id)
        if answers.is_evaluation(job.span_id):
            self.counters.add(Counts.EVALUATIONS_NOT_JUDGED)
            await self._end(job, State.FILTERED.because("evaluation"))
            return
        record = answers.of(job.span_id)
        if record is None:
            # Spans that came after the job was queued moved the answer elsewhere; that span has its own job.
            await self._end(job, State.SUPERSEDED)
            return
        evaluation = await self.judging.evaluate(record, clock=self.clock, earlier=self.partial.take(job))
        if self._should_try_again(job, evaluation):
            await self._postpone(job, evaluation)
            return
        await self._finish(job, record, evaluation, answers.judged(job.span_id))

    def _should_try_again(self, job: Job, evaluation: Evaluation) -> bool:
        failures = evaluation.failures
        mendable = any(_is_mendable(failure) for failure in failures)
        return mendable and job.attempts < len(self.retry_delays_ns)

    async def _postpone(self, job: Job, evaluation: Evaluation) -> None:
        failure = next(each for each in evaluation.failures if _is_mendable(each))
        self.partial.keep(job, evaluation)
        due_ns = self.clock.now_ns() + self.retry_delays_ns[job.attempts]
        await self._write(lambda: self.store.postpone(job, due_ns=due_ns, reason=failure.error_type))
        self.counters.add(Counts.ANSWERS_POSTPONED)
        log.warning(
            "judge failed (%s: %s); answer %s:%s is tried again in %.0f s",
            failure.error_type,
            failure.message,
            job.trace_id,
            job.span_id,
            self.retry_delays_ns[job.attempts] / 1e9,
        )

    async def _finish(self, job: Job, record: RagRecord, evaluation: Evaluation, judged: Judged) -> None:
        note = partial(self.watch.note, job, record, evaluation, now_ns=self.clock.now_ns())
        await self._write(note)
        if not deserves_carrier(evaluation):
            await self._end(job, _outcome(evaluation), judged=judged)
            return
        span = carrier(
            evaluation,
            record,
            sample=job.sample,
            options=self.attach,
            now_ns=self.clock.now_ns(),
            supersedes=job.replaces or None,
            is_revision=job.carriers > 0,
            cost_usd=self.judging.cost_usd(evaluation),
        )
        await self._end(
            job, _outcome(evaluation), carrier=span, evaluator=evaluation.evaluator_version, judged=judged
        )

    async def _end(
        self,
        job: Job,
        outcome: str,
        *,
        carrier: Span | None = None,
        evaluator: str = "",
        judged: Judged | None = None,
    ) -> None:
        parcels = dict.fromkeys(self.sinks, encode([carrier])) if carrier else {}
        addition = encode_addition(addition_of(carrier)) if carrier and self.holds else b""
        finish = partial(
            self.store.finish,
            job,
            outcome,
            parcels=parcels,
            now_ns=self.clock.now_ns(),
            carrier=carrier.span_id if carrier else "",
            evaluator=evaluator,
            addition=addition,
            judged=judged,
        )
        self.counters.add(Counts.ANSWERS_ON_SPAN, await self._write(finish))
        self.counters.add(_COUNTED_AS.get(outcome.partition(":")[0], Counts.ANSWERS_JUDGED))
        self.done.set()

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
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
        log.error("answer %s:%s: %s", job.trace_id, job.span_id, place_of(exc))
        await self._end(job, State.FAILED.because(type(exc).__name__))


_COUNTED_AS: Final = {
    "ineligible": Counts.ANSWERS_INELIGIBLE,
    "failed": Counts.ANSWERS_FAILED,
    "superseded": Counts.ANSWERS_INELIGIBLE,
}


def _is_mendable(failure: MetricFailure) -> bool:
    """Say whether asking the judge again may help: not where it answered, nor where a metric is broken."""
    return failure.error_type.startswith("judge_") and failure.error_type not in _FINAL_ERRORS


def _outcome(evaluation: Evaluation) -> str:
    if any(result.score is not None for result in evaluation.results):
        return State.JUDGED
    if evaluation.failures:
        return State.FAILED.because(evaluation.failures[0].error_type)
    return State.INELIGIBLE.because(str(evaluation.results[0].skip_reason))
