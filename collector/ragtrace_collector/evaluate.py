"""Evaluate: workers evaluate queued answers, retry them, or end them with a reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

from opentelemetry.trace import Tracer

from ragtrace import semconv
from ragtrace.answers.summary import AnswerSummary, short_question, summary_of_judged
from ragtrace.budget import BudgetUnavailable, OverBudget
from ragtrace.conversations import (
    placed_turn,
    session_of,
    turn_of_json,
    wants_earlier_turns,
    with_earlier_turns,
)
from ragtrace.errors import JudgeError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.model import Evaluation, JudgedAnswer, MetricFailure, RagRecord, Status, outcome_of
from ragtrace.pipeline import attach
from ragtrace.ports import Clock
from ragtrace.traces.attach import addition_of, without_evaluation_objects
from ragtrace.traces.carrier_table import number_of
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.assemble import AnswerReader
from ragtrace_collector.config import CollectorConfig, EvaluateConfig
from ragtrace_collector.config.sections import IndexConfig
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.judge import GuardedEvaluator, Live, LiveConfig, SharedEvaluator
from ragtrace_collector.ledger import MOST_CRASHES, PARTLY, POISON, Coverage, FinalOutcome, State
from ragtrace_collector.sampling import RULE_FOLLOW_UP, FollowUps, LowAnswer, Sampler
from ragtrace_collector.stage import report_stage_error
from ragtrace_collector.store.records import (
    Job,
    JudgedInput,
    KeptCarrier,
    KeptTurn,
    RelatedAnswer,
    StoreUnavailable,
    tenant_of,
)
from ragtrace_collector.store.sampling import SamplingState
from ragtrace_collector.store.sessions import SessionTurns
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event, place_of
from ragtrace_collector.telemetry.scores import Scores, log_verdict
from ragtrace_collector.telemetry.tracing import NO_TRACER, working

log = logging.getLogger("ragtrace.collector")


T = TypeVar("T")

_STORE_PAUSE_S: Final = 1.0
_MOST_PARTIAL: Final = 1_000


class PartialEvaluations:
    """Results of answers whose other metrics are retried, so that no metric is judged twice.

    Only in memory, and bounded: what is lost here is judged again. What one evaluator found is not given to
    another.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[Evaluation, SharedEvaluator]] = {}

    def keep(self, job: Job, evaluation: Evaluation, evaluator: SharedEvaluator) -> None:
        """Keep an evaluation in which some metrics have a result."""
        if evaluation.results:
            self._kept[job.trace_id, job.span_id] = evaluation, evaluator
            while len(self._kept) > _MOST_PARTIAL:
                del self._kept[next(iter(self._kept))]

    def take(self, job: Job, evaluator: SharedEvaluator) -> Evaluation | None:
        """Return what this evaluator found about the answer before, and forget it."""
        evaluation, found_by = self._kept.pop((job.trace_id, job.span_id), (None, None))
        return evaluation if found_by is evaluator else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateStage:
    """Evaluates queued answers, several at once."""

    store: Store
    reader: AnswerReader
    live: LiveConfig
    watch: LowScoreWatch
    sinks: tuple[str, ...]
    openinference_sinks: frozenset[str] = frozenset()
    """The sinks that read OpenInference's ``evaluations.<i>.*``."""
    counters: Counters
    coverage: Coverage
    scores: Scores | None = None
    logs_verdicts: bool = False
    """Whether each judged answer is a line in the log."""
    clock: Clock
    done: asyncio.Event
    """Set when there are new items to deliver."""
    tracer: Tracer = NO_TRACER
    holds: bool = False
    """Whether traces may be held, so that scores are written on the answer spans themselves."""
    partial: PartialEvaluations = field(default_factory=PartialEvaluations)

    async def step(self) -> bool:
        """Evaluate the next due answer; say whether there was one."""
        jobs = await self.take(1)
        for job in jobs:
            await self.attempt(job)
        return bool(jobs)

    async def take(self, most: int) -> Sequence[Job]:
        """Lease answers that are due.

        If no judge may be asked, only answers that cannot wait so long are leased.
        """
        live = self.live.now
        policy = RetryPolicy.of(live.config.evaluate)
        closed = live.guarded.closed()
        return await self.store.take_jobs(
            most,
            now_ns=self.clock.now_ns(),
            seen_before_ns=policy.hopeless_before_ns(closed.until_ns) if closed else None,
        )

    async def attempt(self, job: Job) -> None:
        """Evaluate a leased answer, or end it if its outcome is known without that.

        The whole attempt uses one snapshot of the live configuration.

        Raises:
            StoreUnavailable: it could not be read. It is given back.
        """
        live = self.live.now
        async with live.shared_evaluator.evaluation():
            await self._attempt(job, live)

    async def _attempt(self, job: Job, live: Live) -> None:
        try:
            outcome = self._outcome_unasked(job, live)
            if outcome is None:
                await self._judge(job, live)
                return
            if job.crashes:
                log.error(
                    "answer %s:%s ends as %s: %d processes crashed while they judged it",
                    job.in_trace,
                    job.span_id,
                    outcome,
                    job.crashes,
                    extra=_of(job, "answer_set_aside"),
                )
            await self._end(job, outcome)
        except asyncio.CancelledError:
            with suppress(StoreUnavailable):  # then it counts as a crash, and a few are allowed
                await self.store.give_back(job)
            raise
        except StoreUnavailable:  # the disk failed, not the answer: the stage logs it, and waits
            await self._write(partial(self.store.give_back, job))
            raise
        except Exception as exc:  # noqa: BLE001 -- one answer must not end the stage
            await self._give_up(job, exc)

    def _outcome_unasked(self, job: Job, live: Live) -> str | None:
        closed = live.guarded.closed()
        if closed and job.seen_ns < RetryPolicy.of(live.config.evaluate).hopeless_before_ns(closed.until_ns):
            return closed.outcome
        return RetryPolicy.of(live.config.evaluate).ended(job, now_ns=self.clock.now_ns())

    async def _judge(self, job: Job, live: Live) -> None:
        answers = await self.reader.read_for(job, live.rules)
        if answers.is_evaluation(job.span_id):
            self.counters.add(Counts.EVALUATIONS_NOT_JUDGED)
            await self._end(job, State.FILTERED.because("evaluation"))
            return
        record = answers.of(job.span_id)
        if record is None:
            # Spans that came after the job was queued moved the answer elsewhere; that span has its own job.
            await self._end(job, State.SUPERSEDED)
            return
        record = await in_its_session(record, job, live.config, self.store.sessions)
        try:
            with working(self.tracer, "evaluate", on=(job.in_trace, job.span_id)) as span:
                async with asyncio.timeout(live.config.judge.attempt_s):
                    earlier = self.partial.take(job, live.shared_evaluator)
                    evaluation = await live.guarded.evaluator.evaluate(
                        record, clock=self.clock, earlier=earlier
                    )
                span.set_attribute(semconv.EVAL_RUN_ID, evaluation.run_id)
                span.set_attribute("ragtrace.outcome", _outcome(evaluation, live.guarded))
        except TimeoutError:
            await self._time_out(job, live)
            return
        if retry := self._next_retry(
            job, live, [AttemptFailure.of(failure) for failure in evaluation.failures]
        ):
            self.partial.keep(job, evaluation, live.shared_evaluator)
            await self._postpone(job, retry)
            return
        await self._finish(job, record, evaluation, live, answers.judged(job.span_id))

    async def _time_out(self, job: Job, live: Live) -> None:
        message = f"not judged within {live.config.judge.attempt_s:g} s"
        fault = AttemptFailure(error_type=TIMED_OUT, message=message, retry_class=RetryClass.AGAIN)
        if retry := self._next_retry(job, live, [fault]):
            await self._postpone(job, retry)
        else:
            log.warning(
                "answer %s:%s has no score (%s), and is not tried again",
                job.in_trace,
                job.span_id,
                message,
                extra=_of(job, "answer_unscored", error=TIMED_OUT),
            )
            await self._end(job, State.FAILED.because(TIMED_OUT))

    def _next_retry(self, job: Job, live: Live, faults: Sequence[AttemptFailure]) -> Retry | None:
        return RetryPolicy.of(live.config.evaluate).next_retry(
            job, faults, opens_ns=live.guarded.opens_ns(), now_ns=self.clock.now_ns()
        )

    async def _postpone(self, job: Job, retry: Retry) -> None:
        postpone = partial(
            self.store.postpone,
            job,
            due_ns=retry.due_ns,
            reason=retry.fault.error_type,
            failed=retry.failed,
        )
        await self._write(postpone)
        self.counters.add(Counts.ANSWERS_POSTPONED)
        if retry.failed:  # an open breaker or a spent budget was logged once already
            log.warning(
                "judge failed (%s: %s); answer %s:%s is tried again in %.0f s",
                retry.fault.error_type,
                retry.fault.message,
                job.in_trace,
                job.span_id,
                (retry.due_ns - self.clock.now_ns()) / 1e9,
                extra=_of(job, "judge_failed", error=retry.fault.error_type),
            )

    async def _finish(
        self, job: Job, record: RagRecord, evaluation: Evaluation, live: Live, judged: JudgedInput
    ) -> None:
        sampler = live.sampler
        note = partial(self.watch.note, job, record, evaluation, sampler=sampler, now_ns=self.clock.now_ns())
        await self._write(note)
        outcome = _outcome(evaluation, live.guarded)
        if FinalOutcome.of(outcome).state is State.OVER_BUDGET:
            await self._end(job, outcome, judged=judged, evaluation=evaluation)
            return
        _log_failures(job, evaluation)
        span = attach(
            evaluation,
            record,
            options=live.attach,
            sample=job.sample,
            now_ns=self.clock.now_ns(),
            replaces=job.replaces or None,
            is_revision=job.carriers > 0,
            cost_usd=live.guarded.evaluator.cost_usd(evaluation),
        )
        await self._end(
            job,
            outcome,
            evaluation=evaluation,
            carrier=span,
            evaluator=evaluation.evaluator_version if span else "",
            judged=judged,
            index=live.config.index,
            record=record,
            turn=kept_turn(job, record, evaluation, span) if live.config.sessions.enabled and span else None,
        )

    async def _end(
        self,
        job: Job,
        outcome: str,
        *,
        evaluation: Evaluation | None = None,
        carrier: Span | None = None,
        evaluator: str = "",
        judged: JudgedInput | None = None,
        index: IndexConfig | None = None,
        record: RagRecord | None = None,
        turn: KeptTurn | None = None,
    ) -> None:
        payload = encode([without_evaluation_objects(carrier)]) if carrier else b""
        outbox_items = self._payloads(carrier, payload) if carrier else {}
        is_indexed = index is not None
        summary = None
        if carrier and evaluation and record and (is_indexed or self._tells):
            summary = _summary(job, carrier, evaluation, record)
        content = record if index is not None and index.content else None
        addition = addition_of(carrier) if carrier and self.holds else b""
        finish = partial(
            self.store.finish,
            job,
            outcome,
            outbox_items=outbox_items,
            now_ns=self.clock.now_ns(),
            carrier=carrier.span_id if carrier else "",
            evaluator=evaluator,
            addition=addition,
            judged=judged,
            kept=_kept(summary, payload, content) if summary and is_indexed else None,
            turn=turn,
        )
        is_on_span = await self._write(finish)
        self.counters.add(Counts.ANSWERS_ON_SPAN, bool(is_on_span))
        metrics = self.live.now.guarded.evaluator.metrics
        self.coverage.note(outcome, evaluation, metrics)
        if summary and is_on_span is not None:
            self._tell(summary, span_id=job.span_id if is_on_span else summary.carrier_span_id)
        if counted := _COUNTED_AS.get(FinalOutcome.of(outcome).state):
            self.counters.add(counted)
        self.done.set()

    @property
    def _tells(self) -> bool:
        return self.scores is not None or self.logs_verdicts

    def _tell(self, summary: AnswerSummary, *, span_id: str) -> None:
        if self.scores is not None:
            self.scores.note(summary, span_id=span_id)
        if self.logs_verdicts:
            log_verdict(summary)

    def _payloads(self, carrier: Span, plain: bytes) -> dict[str, bytes]:
        """Return the carrier for each sink: those that read OpenInference's objects get them too."""
        whole = encode([carrier]) if self.openinference_sinks else plain
        return {sink: whole if sink in self.openinference_sinks else plain for sink in self.sinks}

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        """Retry the write until it succeeds, so that a full disk causes no second judgment."""
        while True:
            try:
                return await write()
            except StoreUnavailable as exc:
                self.counters.add(Counts.STAGE_ERRORS)
                log.error("a judged answer waits to be stored: %s", exc, extra=event("store_away"))  # noqa: TRY400
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _give_up(self, job: Job, exc: Exception) -> None:
        # The exception's text may quote the answer, so log its type and place only.
        self.counters.add(Counts.STAGE_ERRORS)
        told = _of(job, "answer_failed")
        log.error("answer %s:%s: %s", job.in_trace, job.span_id, place_of(exc), extra=told)
        await self._end(job, State.FAILED.because(type(exc).__name__))


def _summary(job: Job, carrier: Span, evaluation: Evaluation, record: RagRecord) -> AnswerSummary:
    answer = JudgedAnswer(
        record=record,
        evaluation=evaluation,
        sample=job.sample,
        carrier_span_id=carrier.span_id,
        supersedes=job.replaces,
        cost_usd=number_of(carrier.attributes, semconv.JUDGE_COST_USD),
    )
    summary = summary_of_judged(answer, tenant=tenant_of(job.trace_id) or job.tenant)
    return replace(summary, question="")


def _kept(summary: AnswerSummary, payload: bytes, content: RagRecord | None) -> KeptCarrier:
    if content is not None:
        summary = replace(summary, question=short_question(content))
    return KeptCarrier(summary=summary, payload=payload, record=content)


def _log_failures(job: Job, evaluation: Evaluation) -> None:
    """Say which metrics of an answer have no score for good, without content."""
    failures = evaluation.failures
    if not failures:
        return
    log.warning(
        "answer %s:%s has no score of %s (%s: %s), and is not tried again",
        job.in_trace,
        job.span_id,
        ", ".join(dict.fromkeys(failure.metric for failure in failures)),
        failures[0].error_type,
        failures[0].message,
        extra=_of(job, "answer_unscored", error=failures[0].error_type),
    )


def _of(job: Job, name: str, **fields: str) -> dict[str, object]:
    return event(name, trace_id=job.in_trace, span_id=job.span_id, **fields)


_COUNTED_AS: Final = {
    State.JUDGED: Counts.ANSWERS_JUDGED,
    State.INELIGIBLE: Counts.ANSWERS_INELIGIBLE,
    State.FAILED: Counts.ANSWERS_FAILED,
    State.OVER_BUDGET: Counts.ANSWERS_OVER_BUDGET,
    State.EXPIRED: Counts.ANSWERS_EXPIRED,
    State.SUPERSEDED: Counts.ANSWERS_MOVED,
}


def _outcome(evaluation: Evaluation, guarded: GuardedEvaluator) -> str:
    status, reason = outcome_of(evaluation)
    is_over = any(failure.error_type == OverBudget.error_type for failure in evaluation.failures)
    if status is Status.FAILED and is_over:
        closed = guarded.closed()
        return closed.outcome if closed else State.OVER_BUDGET
    if status is Status.JUDGED and evaluation.failures:
        return PARTLY
    return State(status).because(reason) if reason else State(status)


TIMED_OUT: Final = "evaluation_timeout"


class RetryClass(StrEnum):
    """What a failure needs."""

    AGAIN = "again"
    """Another attempt."""
    WAIT = "wait"
    """Wait until a breaker or a budget allows requests again: the answer itself has not failed."""
    NEVER = "never"


_RETRY_CLASSES: Final = {
    JudgeUnavailable.error_type: RetryClass.AGAIN,
    JudgeTimeout.error_type: RetryClass.AGAIN,
    JudgeError.error_type: RetryClass.AGAIN,
    TIMED_OUT: RetryClass.AGAIN,
    JudgeRefused.error_type: RetryClass.WAIT,
    OverBudget.error_type: RetryClass.WAIT,
    BudgetUnavailable.error_type: RetryClass.WAIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """Why an attempt did not give all scores."""

    error_type: str
    message: str
    retry_class: RetryClass

    @classmethod
    def of(cls, failure: MetricFailure) -> AttemptFailure:
        """Classify the failure of a metric. Plug-ins have their own error types, and say whether to retry."""
        own = RetryClass.AGAIN if failure.retryable else RetryClass.NEVER
        return cls(
            error_type=failure.error_type,
            message=failure.message,
            retry_class=_RETRY_CLASSES.get(failure.error_type, own),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When and why an answer is tried again."""

    due_ns: int
    fault: AttemptFailure
    failed: bool
    """Whether the attempt counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long an answer is retried."""

    retry_delays_ns: tuple[int, ...]
    wait_ns: int
    """The least time an answer waits for an open breaker or a spent budget."""
    deadline_ns: int
    """Counted from when it was queued."""

    @classmethod
    def of(cls, evaluate: EvaluateConfig) -> RetryPolicy:
        """Read the policy from the section ``evaluate``."""
        return cls(
            retry_delays_ns=tuple(nanoseconds(delay) for delay in evaluate.retry_delays),
            wait_ns=nanoseconds(evaluate.probe_delays[0]),
            deadline_ns=nanoseconds(evaluate.deadline),
        )

    def next_retry(
        self, job: Job, faults: Sequence[AttemptFailure], *, opens_ns: int, now_ns: int
    ) -> Retry | None:
        """Return when the answer is tried again, or ``None`` if it ends, with a result or at its deadline.

        ``opens_ns`` is when the judges may be asked again.
        """
        is_closed = opens_ns > now_ns
        waiting = next((fault for fault in faults if _waits(fault, job, is_closed=is_closed)), None)
        failing = next((fault for fault in faults if fault.retry_class is not RetryClass.NEVER), None)
        if waiting or (failing and is_closed):
            due_ns = max(opens_ns, now_ns + self.wait_ns)
            return self._in_time(job, due_ns, waiting or failing, failed=False)
        if failing and job.attempts < len(self.retry_delays_ns):
            return self._in_time(job, now_ns + self.retry_delays_ns[job.attempts], failing, failed=True)
        return None

    def _in_time(self, job: Job, due_ns: int, fault: AttemptFailure | None, *, failed: bool) -> Retry | None:
        if fault is None or due_ns >= job.seen_ns + self.deadline_ns:
            return None
        return Retry(due_ns=due_ns, fault=fault, failed=failed)

    def hopeless_before_ns(self, opens_ns: int) -> int:
        """Return the earliest queue time of an answer that can still be judged from ``opens_ns`` on."""
        return opens_ns - self.deadline_ns

    def ended(self, job: Job, *, now_ns: int) -> str | None:
        """Return the outcome of an answer that is not tried (again), or ``None`` if it is."""
        if job.crashes >= MOST_CRASHES:
            return POISON
        if now_ns < job.seen_ns + self.deadline_ns:
            return None
        if not job.reason:
            return State.EXPIRED.because("deadline")
        return State.OVER_BUDGET if job.reason == OverBudget.error_type else State.FAILED.because(job.reason)


def _waits(fault: AttemptFailure, job: Job, *, is_closed: bool) -> bool:
    """Say whether an answer waits. It doesn't if it was refused before and other answers are not."""
    is_its_own = fault.error_type == JudgeRefused.error_type == job.reason and not is_closed
    return fault.retry_class is RetryClass.WAIT and not is_its_own


async def in_its_session(
    record: RagRecord, job: Job, config: CollectorConfig, store: SessionTurns
) -> RagRecord:
    """Return the record with the turns before it that the store knows, if `sessions.context_turns` asks so.

    Raises:
        StoreUnavailable: they could not be read.
    """
    settings = config.sessions.opened(tenant=config.sample.tenant)
    name = session_of(record, tenant=_tenant_of(job))
    if name is None or record.target is None or not wants_earlier_turns(record, settings):
        return record
    found = await store.before(
        name,
        start_ns=record.target.start_ns,
        trace_id=record.target.trace_id,
        span_id=record.target.span_id,
        limit=settings.context_turns,
    )
    return with_earlier_turns(record, map(turn_of_json, found), settings)


def kept_turn(job: Job, record: RagRecord, evaluation: Evaluation, carrier: Span) -> KeptTurn | None:
    """Return what to keep of an evaluated answer; ``None`` if it has no session or no answer."""
    placed = placed_turn(record, evaluation, carrier, tenant=_tenant_of(job))
    if placed is None:
        return None
    supersedes = carrier.attributes.get(semconv.EVAL_SUPERSEDES)
    turn = placed.turn
    return KeptTurn(
        name=placed.name,
        trace_id=turn.trace_id,
        span_id=turn.span_id,
        start_ns=turn.start_ns,
        carrier_span_id=turn.carrier_span_id,
        supersedes=supersedes if isinstance(supersedes, str) else "",
        turn=turn.to_json(),
        place=encode([placed.place]),
    )


def _tenant_of(job: Job) -> str:
    return tenant_of(job.trace_id) or job.tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class LowScoreWatch:
    """Checks each evaluation before its answer is ended, so that a crash loses no low score."""

    sampling_store: SamplingState
    counters: Counters

    async def note(
        self, job: Job, record: RagRecord, evaluation: Evaluation, *, sampler: Sampler, now_ns: int
    ) -> None:
        """Queue related answers of a low one that were sampled out, and keep watching for new ones.

        A related answer that is low itself triggers nothing: one bad prompt must not have everything judged.

        Raises:
            StoreUnavailable: the change cannot be stored; try again.
        """
        follow_ups = sampler.follow_ups
        if follow_ups is None or not _sets_off(follow_ups, job, evaluation):
            return
        low = follow_ups.policy.low_answer(job.trace_id, job.span_id, record, now_ns, tenant=job.tenant)
        follow_ups.add(low)  # before the first await, so that answers from now on see it
        try:
            self.counters.add(
                Counts.ANSWERS_BROUGHT_BACK, await self._select_follow_ups(low, sampler, now_ns)
            )
        except StoreUnavailable:
            follow_ups.forget(low)
            raise

    async def _select_follow_ups(self, low: LowAnswer, sampler: Sampler, now_ns: int) -> int:
        found = await self.sampling_store.candidates(low.keys, limit=low.remaining)
        jobs = [
            _job(answer, low, sampler)
            for answer in found
            if low.remaining > 0 and sampler.takes_place(answer.tenant, answer.span_id, now_ns)
        ]
        refused = await self.sampling_store.save(sampler.take_changes())
        sampler.give_back(refused)
        jobs = [job for job in jobs if all(job.span_id != place.span_id for place in refused)]
        return await self.sampling_store.select_related(low, jobs, now_ns=now_ns)


def _job(answer: RelatedAnswer, low: LowAnswer, sampler: Sampler) -> Job:
    low.remaining -= 1
    return Job(
        trace_id=answer.trace_id,
        span_id=answer.span_id,
        sample=sampler.follow_up_sample,
        tenant=answer.tenant,
    )


def _sets_off(follow_ups: FollowUps, job: Job, evaluation: Evaluation) -> bool:
    is_new = job.sample.rule != RULE_FOLLOW_UP and (job.trace_id, job.span_id) not in follow_ups
    return is_new and follow_ups.policy.is_low(evaluation)


@dataclass(slots=True, kw_only=True)
class WorkerPool:
    """Gives due answers to free workers, with one query to the store for all of them."""

    most: Callable[[], int]
    """Returns how many answers may be judged at once, which may change."""
    take: Callable[[int], Awaitable[Sequence[Job]]]
    judge: Callable[[Job], Awaitable[None]]
    workers: asyncio.TaskGroup
    wake: asyncio.Event
    """Set when there are new answers to judge, or when a worker becomes free."""
    counters: Counters
    _busy: int = 0
    _has_more: bool = False
    """Whether answers may be due that no worker was free for."""

    async def step(self) -> bool:
        """Take as many answers as workers are free; say whether more may be taken at once."""
        free = max(0, self.most() - self._busy)
        self._busy += free
        jobs: Sequence[Job] = ()
        try:
            jobs = await self.take(free) if free else ()
        finally:
            self._busy -= free - len(jobs)
        for job in jobs:
            self.workers.create_task(self._work(job), name=f"evaluate-{job.trace_id}-{job.span_id}")
        self._has_more = len(jobs) == free
        return self._has_more and self._busy < self.most()

    async def _work(self, job: Job) -> None:
        try:
            await self.judge(job)
        except Exception as exc:  # noqa: BLE001 -- one answer must not end the stage
            report_stage_error(exc, stage="evaluate", counters=self.counters)
        finally:
            self._busy -= 1
            if self._has_more or job.crashes:  # a suspect is judged alone: the next may have waited for it
                self.wake.set()
