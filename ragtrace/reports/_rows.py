"""An answer as a row: the schema of JSON lines and Parquet, and the source of CSV cells."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, TypedDict, cast

from ragtrace.answers.rows import SCHEMA_VERSION
from ragtrace.model import Blame, Chunk, Gap, JudgeIdentity, MetricFailure, MetricOutcome, MetricResult
from ragtrace.outcomes import JudgedAnswer, outcome_of
from ragtrace.records import (
    ChunkVerdictObject,
    IntermediateObject,
    StepObject,
    TokenCounts,
    VerdictObject,
    chunk_verdict_object,
    intermediate_object,
    step_objects,
    token_counts,
    verdict_object,
)
from ragtrace.traces.attach import Sample


class ChunkRow(TypedDict):
    """A retrieved chunk."""

    id: str
    text: str | None
    rank: int
    score: float | None
    truncated: bool


class GapRow(TypedDict):
    """A missing or damaged part of the record."""

    part: str
    reason: str
    detail: str


class SampleRow(TypedDict):
    """How the answer was sampled."""

    rule: str
    rate: float
    probability: float | None


class MetricRow(TypedDict):
    """The outcome of one metric."""

    metric: str
    profile: str
    status: str
    label: str
    score: float | None
    threshold: float | None
    pass_when: str | None
    direction: str | None
    skip_reason: str | None
    error_type: str | None
    message: str | None
    explanation: str
    reason: str | None
    diagnosis: str | None
    details: dict[str, float | None]
    intermediate: IntermediateObject | None
    verdicts: list[VerdictObject]
    chunk_verdicts: list[ChunkVerdictObject]
    judge: str
    evaluator_version: str
    calls: int
    usage: TokenCounts
    duration_ms: int
    steps: list[StepObject]
    compat_status: str | None
    compat_score: float | None


class FaultRow(TypedDict):
    """One failed hop."""

    blame: str
    why: str
    claim: int | None
    chunk_ids: list[str]
    span_id: str
    quote: str


class BlameRow(TypedDict):
    """Which hops failed."""

    classes: list[str]
    faults: list[FaultRow]
    missing: list[str]


class AnswerRow(TypedDict):
    """One answer with its evaluation. ``None`` means absent or unknown."""

    version: int
    record_id: str
    trace_id: str | None
    span_id: str | None
    carrier_span_id: str | None
    service: str | None
    time: str | None
    model: str | None
    session_id: str | None
    conversation_id: str | None
    response_id: str | None
    prompt_version: str | None
    status: str
    reason: str | None
    question: str | None
    answer: str | None
    reference: str | None
    chunks: list[ChunkRow]
    gaps: list[GapRow]
    metrics: list[MetricRow]
    blame: BlameRow
    judge: str
    evaluator_set: str
    evaluator_version: str
    judged_at: str | None
    duration_ms: int
    input_sha256: str
    input_truncated: bool
    compromised: bool
    judge_card: str
    calls: int
    usage: TokenCounts
    cost_usd: float | None
    sample: SampleRow | None


def answer_row(answer: JudgedAnswer) -> AnswerRow:
    """Make the row of an answer.

    Lone surrogates, which UTF-8 cannot encode, become U+FFFD; numbers that are not finite become ``None``.
    """
    record, evaluation, target = answer.record, answer.evaluation, answer.record.target
    status, reason = outcome_of(evaluation)
    row: AnswerRow = {
        "version": SCHEMA_VERSION,
        "record_id": record.id,
        "trace_id": target.trace_id if target else None,
        "span_id": target.span_id if target else None,
        "carrier_span_id": answer.carrier_span_id,
        "service": answer.service,
        "time": _moment(target.start_ns) if target else None,
        "model": record.model,
        "session_id": record.session_id,
        "conversation_id": record.conversation_id,
        "response_id": record.response_id,
        "prompt_version": record.prompt_version,
        "status": status.value,
        "reason": reason,
        "question": record.question,
        "answer": record.answer,
        "reference": record.reference,
        "chunks": [_chunk(chunk) for chunk in record.chunks],
        "gaps": [_gap(gap) for gap in record.gaps],
        "metrics": [_metric(outcome, evaluation.judge) for outcome in evaluation.outcomes],
        "blame": _blame(evaluation.blame),
        "judge": _judge(evaluation.judge),
        "evaluator_set": evaluation.evaluator_set,
        "evaluator_version": evaluation.evaluator_version,
        "judged_at": _moment(evaluation.started_at_ns),
        "duration_ms": evaluation.duration_ms,
        "input_sha256": evaluation.input_sha256,
        "input_truncated": evaluation.input_truncated,
        "compromised": evaluation.compromised,
        "judge_card": evaluation.judge_card,
        "calls": evaluation.usage.calls,
        "usage": token_counts(evaluation.usage),
        "cost_usd": answer.cost_usd,
        "sample": _sample(answer.sample) if answer.sample else None,
    }
    return cast("AnswerRow", _writable(row))


def _blame(blame: Blame) -> BlameRow:
    return {
        "classes": [found.value for found in blame.classes],
        "faults": [
            {
                "blame": fault.blame.value,
                "why": fault.why,
                "claim": fault.claim,
                "chunk_ids": list(fault.chunk_ids),
                "span_id": fault.span_id,
                "quote": fault.quote,
            }
            for fault in blame.faults
        ],
        "missing": list(blame.missing),
    }


def _metric(outcome: MetricOutcome, judge: JudgeIdentity) -> MetricRow:
    result = outcome if isinstance(outcome, MetricResult) else None
    failure = outcome if isinstance(outcome, MetricFailure) else None
    skip_reason = result.skip_reason.value if result and result.skip_reason else None
    return {
        "metric": outcome.metric,
        "profile": outcome.profile,
        "status": "error" if failure else "skipped" if skip_reason else "ok",
        "label": outcome.label.value,
        "score": result.score if result else None,
        "threshold": result.threshold if result else None,
        "pass_when": result.pass_when if result else None,
        "direction": result.direction.value if result else None,
        "skip_reason": skip_reason,
        "error_type": failure.error_type if failure else None,
        "message": failure.message if failure else None,
        "explanation": result.explanation if result else "",
        "reason": result.reason if result else None,
        "diagnosis": result.diagnosis.value if result and result.diagnosis else None,
        "details": {**result.details} if result else {},
        "intermediate": intermediate_object(result.intermediate) if result and result.intermediate else None,
        "verdicts": [verdict_object(verdict) for verdict in result.verdicts] if result else [],
        "chunk_verdicts": [chunk_verdict_object(chunk_verdict) for chunk_verdict in result.chunk_verdicts]
        if result
        else [],
        "judge": _judge((result.judge if result else None) or judge),
        "evaluator_version": outcome.evaluator_version,
        "calls": outcome.usage.calls,
        "usage": token_counts(outcome.usage),
        "duration_ms": outcome.duration_ms,
        "steps": step_objects(outcome.steps),
        "compat_status": outcome.compat.status.value if outcome.compat else None,
        "compat_score": outcome.compat.score if outcome.compat else None,
    }


def _chunk(chunk: Chunk) -> ChunkRow:
    return {
        "id": chunk.id,
        "text": chunk.text,
        "rank": chunk.rank,
        "score": None if chunk.score is None else float(chunk.score),
        "truncated": chunk.truncated,
    }


def _gap(gap: Gap) -> GapRow:
    return {"part": gap.part.value, "reason": gap.reason.value, "detail": gap.detail}


def _sample(sample: Sample) -> SampleRow:
    return {"rule": sample.rule, "rate": sample.rate, "probability": sample.probability}


def _judge(judge: JudgeIdentity) -> str:
    return judge.name


def _moment(time_ns: int) -> str | None:
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)
    except (OverflowError, ValueError, OSError):  # a wrong clock: no calendar has that year
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _writable(value: Any) -> Any:
    match value:
        case str():
            return (
                value
                if value.isascii()
                else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )
        case float():
            return value if math.isfinite(value) else None
        case list():
            return [_writable(element) for element in value]
        case dict():
            return {_writable(key): _writable(each) for key, each in value.items()}
        case _:
            return value
