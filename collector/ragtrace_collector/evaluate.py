"""Evaluate: workers evaluate queued answers, retry them, or end them with a reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from opentelemetry.trace import Tracer

from ragtrace import semconv
from ragtrace.answers.summary import AnswerSummary, short_question, summary_of_judged
from ragtrace.budget import BudgetUnavailable, OverBudget
from ragtrace.conversations import (
    PlacedTurn,
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
from ragtrace_collector.judge import GuardedEvaluator, Live, LiveConfig
from ragtrace_collector.ledger import MOST_CRASHES, PARTLY, POISON, Coverage, FinalOutcome, State
from ragtrace_collector.stage import report_stage_error
from ragtrace_collector.store.records import (
    Job,
    JudgedInput,
    KeptCarrier,
    StoreUnavailable,
    tenant_of,
)
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
        self._kept: dict[tuple[str, str], tuple[Evaluation, GuardedEvaluator]] = {}

    def keep(self, job: Job, evaluation: Evaluation, evaluator: GuardedEvaluator) -> None:
        """Keep an evaluation in which some metrics have a result."""
        if evaluation.results:
            self._kept[job.trace_id, job.span_id] = evaluation, evaluator
            while len(self._kept) > _MOST_PARTIAL:
                del self._kept[next(iter(self._kept))]

    def take(self, job: Job, evaluator: GuardedEvaluator) -> Evaluation | None:
        """Return what this evaluator found about the answer before, and forget it."""
        evaluation, found_by = self._kept.pop((job.trace_id, job.span_id), (None, None))
        return evaluation if found_by is evaluator else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateStage:
    """Evaluates queued answers, several at once."""

    store: Store
    reader: AnswerReader
    live: LiveConfig
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

    async def take(self, most: int) -> Sequence[Job]:
        """Lease answers that are due.

        If no judge may be asked, only answers that cannot wait so long are leased.
        """
        live = self.live.now
        closed = live.guarded.closed()
        return await self.store.take_jobs(
            most,
            now_ns=self.clock.now_ns(),
            seen_before_ns=_hopeless_before_ns(live.config.evaluate, closed.until_ns) if closed else None,
        )

    async def attempt(self, job: Job) -> None:
        """Evaluate a leased answer, or end it if its outcome is known without that.

        The whole attempt uses one snapshot of the live configuration.

        Raises:
            StoreUnavailable: it could not be read. It is given back.
        """
        live = self.live.now
        async with live.guarded.evaluation():
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
        if closed and job.seen_ns < _hopeless_before_ns(live.config.evaluate, closed.until_ns):
            return closed.outcome
        return _ended(job, live.config.evaluate, now_ns=self.clock.now_ns())

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
                    earlier = self.partial.take(job, live.guarded)
                    evaluation = await live.guarded.evaluator.evaluate(
                        record, clock=self.clock, earlier=earlier
                    )
                span.set_attribute(semconv.EVAL_RUN_ID, evaluation.run_id)
                span.set_attribute("ragtrace.outcome", _outcome(evaluation, live.guarded))
        except TimeoutError:
            await self._time_out(job, live)
            return
        if retry := self._next_retry(job, live, evaluation.failures):
            self.partial.keep(job, evaluation, live.guarded)
            await self._postpone(job, retry)
            return
        await self._finish(job, record, evaluation, live, answers.judged(job.span_id))

    async def _time_out(self, job: Job, live: Live) -> None:
        message = f"not judged within {live.config.judge.attempt_s:g} s"
        late = MetricFailure(
            metric="", profile="", error_type=TIMED_OUT, message=message, evaluator_version=""
        )
        if retry := self._next_retry(job, live, [late]):
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

    def _next_retry(self, job: Job, live: Live, failures: Sequence[MetricFailure]) -> Retry | None:
        opens_ns, now_ns = live.guarded.opens_ns(), self.clock.now_ns()
        return next_retry(job, failures, live.config.evaluate, opens_ns=opens_ns, now_ns=now_ns)

    async def _postpone(self, job: Job, retry: Retry) -> None:
        postpone = partial(
            self.store.postpone,
            job,
            due_ns=retry.due_ns,
            reason=retry.because.error_type,
            failed=retry.failed,
        )
        await self._write(postpone)
        self.counters.add(Counts.ANSWERS_POSTPONED)
        if retry.failed:  # an open breaker or a spent budget was logged once already
            log.warning(
                "judge failed (%s: %s); answer %s:%s is tried again in %.0f s",
                retry.because.error_type,
                retry.because.message,
                job.in_trace,
                job.span_id,
                (retry.due_ns - self.clock.now_ns()) / 1e9,
                extra=_of(job, "judge_failed", error=retry.because.error_type),
            )

    async def _finish(
        self, job: Job, record: RagRecord, evaluation: Evaluation, live: Live, judged: JudgedInput
    ) -> None:
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
            turn=placed_turn(record, evaluation, span, tenant=_tenant_of(job))
            if live.config.sessions.enabled and span
            else None,
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
        turn: PlacedTurn | None = None,
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
            kept=KeptCarrier(
                summary=replace(summary, question=short_question(content)) if content else summary,
                payload=payload,
                record=content,
            )
            if summary and is_indexed
            else None,
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
_WAIT: Final = (JudgeRefused.error_type, OverBudget.error_type, BudgetUnavailable.error_type)
"""Until a breaker or a budget allows requests again: the answer itself has not failed."""
_AGAIN: Final = (
    *(JudgeUnavailable.error_type, JudgeTimeout.error_type, JudgeError.error_type, TIMED_OUT),
    *_WAIT,
)
"""Plug-ins have their own error types, and say whether to retry."""


class Retry(NamedTuple):
    """When and why an answer is tried again."""

    due_ns: int
    because: MetricFailure
    failed: bool
    """Whether the attempt counts."""


def next_retry(
    job: Job, failures: Sequence[MetricFailure], evaluate: EvaluateConfig, *, opens_ns: int, now_ns: int
) -> Retry | None:
    """Return when the answer is tried again, or ``None`` if it ends, with a result or at its deadline.

    ``opens_ns`` is when the judges may be asked again.
    """
    is_closed = opens_ns > now_ns
    failing = [each for each in failures if each.retryable or each.error_type in _AGAIN]
    # one that was refused before, while other answers are not, has failed by itself
    waiting = [
        each
        for each in failing
        if each.error_type in _WAIT
        and (is_closed or not each.error_type == JudgeRefused.error_type == job.reason)
    ]
    if waiting or (failing and is_closed):
        wait_ns = nanoseconds(evaluate.probe_delays[0])
        retry = Retry(max(opens_ns, now_ns + wait_ns), (waiting or failing)[0], failed=False)
    elif failing and job.attempts < len(evaluate.retry_delays):
        delay_ns = nanoseconds(evaluate.retry_delays[job.attempts])
        retry = Retry(now_ns + delay_ns, failing[0], failed=True)
    else:
        return None
    return retry if retry.due_ns < job.seen_ns + nanoseconds(evaluate.deadline) else None


def _ended(job: Job, evaluate: EvaluateConfig, *, now_ns: int) -> str | None:
    """Return the outcome of an answer that is not tried (again), or ``None`` if it is."""
    if job.crashes >= MOST_CRASHES:
        return POISON
    if now_ns < job.seen_ns + nanoseconds(evaluate.deadline):
        return None
    if not job.reason:
        return State.EXPIRED.because("deadline")
    return State.OVER_BUDGET if job.reason == OverBudget.error_type else State.FAILED.because(job.reason)


def _hopeless_before_ns(evaluate: EvaluateConfig, opens_ns: int) -> int:
    """Return the earliest queue time of an answer that can still be judged from ``opens_ns`` on."""
    return opens_ns - nanoseconds(evaluate.deadline)


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


def _tenant_of(job: Job) -> str:
    return tenant_of(job.trace_id) or job.tenant


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
