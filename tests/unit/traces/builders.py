"""Spans, records and evaluations for tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from ragtrace.model import (
    AttributeValue,
    Chunk,
    ChunkVerdict,
    Claim,
    Direction,
    Evaluation,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Target,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.traces.extract import extract_records
from ragtrace.traces.trace import Resource, Scope, Span, StatusCode, Trace

TRACE_ID = "6b5cca6f0a1b4c2d8e9f00112233aabb"
START_NS = 1_795_299_214_022_000_000
MS = 1_000_000


def span_id(number: int) -> str:
    return f"{number:016x}"


def a_span(
    number: int,
    parent: int | None = None,
    *,
    at: tuple[int, int] = (0, 1_000),
    name: str = "",
    attributes: Mapping[str, AttributeValue] | None = None,
    scope: str = "app",
    dropped: int = 0,
    status: StatusCode = StatusCode.UNSET,
) -> Span:
    """Build a span; ``at`` is its start and end in milliseconds of the trace."""
    return Span(
        trace_id=TRACE_ID,
        span_id=span_id(number),
        parent_span_id=span_id(parent) if parent else None,
        name=name or f"span {number}",
        start_ns=START_NS + at[0] * MS,
        end_ns=START_NS + at[1] * MS,
        attributes=attributes or {},
        dropped_attributes_count=dropped,
        status_code=status,
        resource=Resource(attributes={"service.name": "support-bot"}),
        scope=Scope(name=scope),
    )


def a_trace(*spans: Span) -> Trace:
    return Trace.of(TRACE_ID, spans)


def message(role: str, text: str) -> dict[str, AttributeValue]:
    return {"role": role, "parts": ({"type": "text", "content": text},)}


def messages(role: str, text: str) -> str:
    return json.dumps([message(role, text)])


def documents(**texts: str) -> str:
    return json.dumps([{"id": key, "score": 0.5, "content": text} for key, text in texts.items()])


def a_claim(
    index: int,
    label: VerdictLabel,
    *,
    text: str = "",
    chunk_ids: tuple[str, ...] = (),
    kind: str = "factual",
) -> Verdict:
    text = text or f"Claim {index}."
    claim = Claim(index=index, text=text, start=index * 10, end=index * 10 + 9, kind=kind)
    is_quoted = bool(chunk_ids)
    return Verdict(
        claim=claim,
        label=label,
        reason="30 days vs 14 days" if label is VerdictLabel.CONTRADICTED else None,
        chunk_ids=chunk_ids,
        quote="within 14 days" if is_quoted else None,
        quote_verified=is_quoted,
    )


def a_chunk_verdict(rank: int, label: VerdictLabel, *, reason: str | None = None) -> ChunkVerdict:
    return ChunkVerdict(chunk_id=f"faq-{rank}", rank=rank, label=label, reason=reason, confidence=0.9)


def a_result(
    *verdicts: Verdict,
    score: float | None = 0.5,
    threshold: float = 0.6,
    metric: str = "faithfulness",
    profile: str = "ragtrace",
    skip_reason: SkipReason | None = None,
    explanation: str = "",
    chunk_verdicts: tuple[ChunkVerdict, ...] = (),
) -> MetricResult:
    return MetricResult(
        metric=metric,
        profile=profile,
        score=score,
        threshold=threshold,
        direction=Direction.HIGHER_IS_BETTER,
        evaluator_version="1",
        skip_reason=skip_reason,
        explanation=explanation,
        verdicts=verdicts,
        chunk_verdicts=chunk_verdicts,
        prompt_sha256="ab" * 32,
        usage=Usage(calls=2, input_tokens=900, output_tokens=80),
    )


def a_failure(metric: str = "faithfulness") -> MetricFailure:
    return MetricFailure(
        metric=metric,
        profile="ragtrace",
        error_type="judge_timeout",
        message="the judge gave no answer within 60 s",
        evaluator_version="1",
        retryable=True,
    )


def an_evaluation(*outcomes: MetricOutcome, computes: bool = False) -> Evaluation:
    return Evaluation(
        record_id=f"{TRACE_ID}:{span_id(3)}",
        outcomes=outcomes,
        judge=JudgeIdentity(provider="openai", model="gpt-4o-mini", computes=computes),
        evaluator_set="faithfulness/ragtrace",
        evaluator_version="1",
        run_id="run-1",
        started_at_ns=START_NS + 60_000 * MS,
        duration_ms=1_250,
        input_sha256="cd" * 32,
        usage=Usage(calls=2, input_tokens=900, output_tokens=80),
    )


def a_target(*, start_ns: int = START_NS, end_ns: int = START_NS + 1_500 * MS) -> Target:
    return Target(
        trace_id=TRACE_ID,
        span_id=span_id(3),
        start_ns=start_ns,
        end_ns=end_ns,
        name="chat gpt-4o-mini",
        root_name="invoke_workflow support-rag",
        trace_flags=1,
        resource={"service.name": "support-bot", "deployment.environment.name": "test"},
    )


def a_record(target: Target | None = None) -> RagRecord:
    return RagRecord(
        id=f"{TRACE_ID}:{span_id(3)}",
        question="How long can I return an order?",
        chunks=(Chunk(id="faq-12", text="Orders can be returned within 14 days."),),
        answer="Orders can be returned within 30 days. Refunds take 5 working days.",
        target=target or a_target(),
        session_id="session-1",
        response_id="chatcmpl-1",
        model="gpt-4o-mini",
        prompt_version="7",
    )


def the_record(*spans: Span) -> RagRecord:
    """Read the one record of a trace."""
    (record,) = extract_records(a_trace(*spans)).records
    return record


def reasons(record: RagRecord) -> dict[Part, SkipReason]:
    """Return why each part with a gap has it."""
    return {gap.part: gap.reason for gap in record.gaps}


def lines_run(work: Callable[..., object], *given: object) -> int:
    """Count the lines of Python that run: what the work takes, on any machine."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work(*given)
    finally:
        sys.settrace(before)
    return lines
