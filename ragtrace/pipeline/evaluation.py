"""Evaluate a record: metrics run concurrently, and failures are values."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Final
from uuid import uuid4

from ragtrace.clock import SystemClock
from ragtrace.errors import JudgeError
from ragtrace.judge import open_embedder, open_judge
from ragtrace.judge.layers import folding_contradicted
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.metrics import Prompts, StepLimits, metric_named
from ragtrace.metrics.asking import together
from ragtrace.metrics.criterion import Criterion
from ragtrace.metrics.faithfulness import Faithfulness
from ragtrace.metrics.judge_card import JudgeCard, card_of, card_state
from ragtrace.metrics.registry import problem_in, valid_metric
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    Direction,
    Evaluation,
    Gap,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    evaluator_set_of,
    version_of_set,
)
from ragtrace.ports import Clock, Embedder, Judge, Metric
from ragtrace.scoring.blame import blame_of

_log = logging.getLogger(__name__)


async def evaluate(
    record: object,
    *,
    metrics: Sequence[Metric | str] = ("faithfulness",),
    judge: Judge | str = "lexical",
    run_id: str | None = None,
    clock: Clock | None = None,
    prompts: Prompts | None = None,
    limits: StepLimits | None = None,
    embedder: Embedder | str | None = None,
    second_judge: Judge | str | None = None,
    cards: Sequence[JudgeCard] = (),
) -> Evaluation:
    """Run each metric on the record; judges and embedders given by name are opened and closed here.

    The record may be whatever `RagRecord.of` makes one of, such as another tool's sample.

    Every error while measuring becomes a ``MetricFailure``, never a score. If the judge fails a canary claim,
    the second judge repeats the whole step, and the results name it. ``cards`` say what was measured of
    judges, beside the package's own cards: one whose *contradicted* is mostly wrong by its card has it folded
    into *unsupported*.

    Raises:
        ConfigError: no metric, judge or embedder has that name, or it lacks a setting.
        TypeError: it has none of the parts of a record, or one that cannot be read.
    """
    record = RagRecord.of(record)
    chosen = [
        metric_named(metric) if isinstance(metric, str) else valid_metric(metric, named=type(metric).__name__)
        for metric in metrics
    ]
    clock = clock or SystemClock()
    started_at_ns = clock.now_ns()
    async with AsyncExitStack() as opened:
        steps = StepSession(
            record,
            by_card(await _opened(judge, opened), cards),
            prompts=prompts,
            limits=limits,
            embedder=await _opened_embedder(embedder, opened),
            second_judge=by_card(await _opened(second_judge, opened), cards) if second_judge else None,
            wanted=_wanted(chosen),
            criteria=[metric.criterion for metric in chosen if isinstance(metric, Criterion)],
            clock=clock,
        )
        outcomes = await _measure_all(chosen, record, steps, clock)
    evaluation = Evaluation(
        record_id=record.id,
        outcomes=outcomes,
        judge=steps.judge,
        evaluator_set=evaluator_set(chosen),
        evaluator_version=version_of_set([outcome.evaluator_version for outcome in outcomes]),
        run_id=run_id or uuid4().hex,
        started_at_ns=started_at_ns,
        duration_ms=_ms_since(started_at_ns, clock),
        input_sha256=steps.input_sha256,
        input_truncated=_judged(outcomes) and (steps.cut or _is_truncated(record)),
        usage=steps.usage,
        compromised=steps.compromised,
        judge_card="" if steps.judge.is_human else card_state(steps.judge, cards).value,
    )
    return replace(evaluation, blame=blame_of(record, evaluation))


def evaluator_set(metrics: Sequence[Metric]) -> str:
    """Return the names of the metrics and profiles, sorted: ``faithfulness/ragtrace``."""
    return evaluator_set_of((metric.name, metric.profile) for metric in metrics)


def evaluator_version(
    metrics: Sequence[Metric],
    judge: Judge,
    *,
    prompts: Prompts | None = None,
    limits: StepLimits | None = None,
    second_judge: Judge | None = None,
    embedder: Embedder | None = None,
    cards: Sequence[JudgeCard] = (),
) -> str:
    """Return the version of the evaluator, before it judges any record.

    It changes with the metrics, thresholds, prompts, judge, second judge, embedder and limits. Otherwise it
    is stable, so a new evaluation of a target can be told from a repeated one.
    """
    nothing = RagRecord(id="", question=None, chunks=(), answer=None)
    steps = StepSession(
        nothing,
        by_card(judge, cards),
        prompts=prompts,
        limits=limits,
        embedder=embedder,
        second_judge=by_card(second_judge, cards) if second_judge else None,
        wanted=_wanted(metrics),
    )
    return version_of_set([steps.version_of(metric) for metric in metrics])


def by_card(judge: Judge, cards: Sequence[JudgeCard]) -> Judge:
    """Return the judge as far as its card says that it can be believed."""
    card = card_of(judge.identity, cards)
    return judge if card is None or card.contradicts_reliably else folding_contradicted(judge)


def _wanted(metrics: Sequence[Metric]) -> set[str]:
    return {step for metric in metrics for step in metric.uses or ()}


async def _opened(judge: Judge | str, opened: AsyncExitStack) -> Judge:
    return await opened.enter_async_context(aclosing(open_judge(judge))) if isinstance(judge, str) else judge


async def _opened_embedder(embedder: Embedder | str | None, opened: AsyncExitStack) -> Embedder | None:
    if isinstance(embedder, str):
        return await opened.enter_async_context(aclosing(open_embedder(embedder)))
    return embedder


async def _measure_all(
    metrics: Sequence[Metric], record: RagRecord, steps: StepSession, clock: Clock
) -> tuple[MetricOutcome, ...]:
    if gap := no_rag_call(metrics, record):
        return tuple(_skipped(metric, steps, gap) for metric in metrics)
    start_ns = clock.now_ns()
    return tuple(
        await together(_timed(metric, record, steps.for_one_metric(), clock, start_ns) for metric in metrics)
    )


def no_rag_call(metrics: Sequence[Metric], record: RagRecord) -> Gap | None:
    """Return why these metrics do not apply to a record from a trace, or ``None`` if they do.

    Agents and chats answer without a retrieval in the same traces. If one metric needs the context, the set
    is about RAG calls, and the other metrics must not spend calls on plain chats.
    """
    gap = record.gap(Part.CONTEXT)
    if record.target is None or gap is None or gap.reason is not SkipReason.NO_RETRIEVAL:
        return None
    return gap if any(Part.CONTEXT in metric.needs for metric in metrics) else None


def _skipped(metric: Metric, steps: StepSession, gap: Gap) -> MetricResult:
    return MetricResult(
        metric=metric.name,
        profile=metric.profile,
        score=None,
        threshold=metric.threshold,
        direction=metric.direction,
        evaluator_version=steps.version_of(metric),
        skip_reason=gap.reason,
        explanation=gap.detail,
    )


async def _timed(
    metric: Metric, record: RagRecord, steps: StepSession, clock: Clock, start_ns: int
) -> MetricOutcome:
    """Measure, and take the time since all metrics started: a step that two metrics share is within both."""
    outcome = _with_threshold(await _measure(metric, record, steps))
    return replace(outcome, duration_ms=_ms_since(start_ns, clock), steps=steps.runs)


def _with_threshold(outcome: MetricOutcome) -> MetricOutcome:
    if not isinstance(outcome, MetricResult) or outcome.score is None or outcome.threshold is None:
        return outcome
    compared = f"score {round(outcome.score, 4):g}, threshold {outcome.threshold:g}"
    if outcome.direction is Direction.LOWER_IS_BETTER:
        compared += " at most"
    return replace(outcome, explanation="; ".join(filter(None, (outcome.explanation, compared))))


def _ms_since(started_ns: int, clock: Clock) -> int:
    return max(0, clock.now_ns() - started_ns) // 1_000_000


async def _measure(metric: Metric, record: RagRecord, steps: StepSession) -> MetricOutcome:
    try:
        result = await metric.measure(record, steps)
    except JudgeError as exc:
        return _failure(metric, steps, exc.error_type, str(exc), retryable=exc.retryable)
    except Exception as exc:  # noqa: BLE001 one metric's failure must not stop the others
        return _failure(metric, steps, type(exc).__name__, _whereabouts(metric, exc))
    fault = problem_in(result, metric)
    if fault:
        return _failure(metric, steps, "metric_invalid", fault)
    if isinstance(result, MetricResult) and result.judge != steps.substitute:
        return replace(result, judge=steps.substitute)
    return result


def _whereabouts(metric: Metric, exc: Exception) -> str:
    # an unexpected exception's message may hold text under judgment: report only its type and place
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    message = f"{type(exc).__name__} in {frame.name} (line {frame.lineno})"
    _log.error("metric %s failed: %s", metric.name, message)
    return message


def _failure(
    metric: Metric, steps: StepSession, error_type: str, message: str, *, retryable: bool = False
) -> MetricFailure:
    return MetricFailure(
        metric=metric.name,
        profile=metric.profile,
        error_type=error_type,
        message=message,
        evaluator_version=steps.version_of(metric),
        retryable=retryable,
        usage=steps.spent_here,
    )


def _judged(outcomes: Sequence[MetricOutcome]) -> bool:
    return any(isinstance(outcome, MetricResult) and outcome.counts.total for outcome in outcomes)


def _is_truncated(record: RagRecord) -> bool:
    noted = any(gap.reason is SkipReason.TRUNCATED for gap in record.gaps)
    return noted or any(chunk.truncated for chunk in record.chunks)


_SCREEN: Final = LexicalJudge()
_METRIC: Final = Faithfulness()


async def suspicion_of(record: RagRecord) -> float | None:
    """Return how likely an unsupported claim is in the answer, from 0 to 1: it ranks answers.

    It is what ``lexical`` writes as ``ragtrace.suspicion``. ``None`` if there is nothing to judge: no answer,
    no context, no claim.
    """
    return (await evaluate(record, metrics=(_METRIC,), judge=_SCREEN)).suspicion
