"""Judged answers for the tests of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ragtrace.model import (
    Chunk,
    Claim,
    Direction,
    Evaluation,
    JudgedAnswer,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Sample,
    SkipReason,
    Target,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.reports import RunEnd, RunInfo, open_report

ABOUT = RunInfo(
    source="otlp-file:traces.jsonl", judge="scripted:scripted", metrics=("faithfulness",), began_at_ns=0
)
CHUNK = "Orders can be returned within 14 days."
START_NS = 1_795_299_214_022_333_000
texts = st.text(st.sampled_from("aZ0.é漢😀\0\n\r\t\"'\\\u2028\x85=+-@\uff1d,;<&{"), max_size=8)


def judged(
    number: int = 0, score: float | None = 1.0, *, verdict: Verdict | None = None, **parts: Any
) -> JudgedAnswer:
    """Build an answer; without a score it is skipped."""
    found = result(score, verdict=verdict or a_verdict(VerdictLabel.SUPPORTED))
    return of_outcome(found, number=number, **parts)


def of_outcome(
    *outcomes: MetricOutcome,
    number: int = 0,
    answer: str = CHUNK,
    chunk: str = CHUNK,
    question: str = "How long?",
    probability: float | None = 1.0,
) -> JudgedAnswer:
    """Build an answer about which metrics found this."""
    record = RagRecord(
        id=f"record {number}",
        question=question,
        chunks=(Chunk(id="faq-12", text=chunk, score=0.8),),
        answer=answer,
        target=Target(
            trace_id=f"{number + 1:032x}",
            span_id=f"{number + 1:016x}",
            start_ns=START_NS,
            end_ns=START_NS,
            resource={"service.name": "shop"},
        ),
    )
    evaluation = Evaluation(
        record_id=record.id,
        outcomes=outcomes,
        judge=JudgeIdentity(provider="openai", model="some-model"),
        evaluator_set="faithfulness/ragtrace",
        evaluator_version="1",
        run_id="run",
        started_at_ns=START_NS,
        duration_ms=12,
        input_sha256="ab",
        usage=Usage(calls=2, input_tokens=100, output_tokens=10),
    )
    sample = Sample(rule="ratio", rate=0.5, probability=probability)
    return JudgedAnswer(record=record, evaluation=evaluation, sample=sample, carrier_span_id="cd" * 8)


def result(
    score: float | None,
    *,
    verdict: Verdict | None = None,
    metric: str = "faithfulness",
    direction: Direction = Direction.HIGHER_IS_BETTER,
) -> MetricResult:
    """Build what a metric found."""
    return MetricResult(
        metric=metric,
        profile="ragtrace",
        score=score,
        threshold=0.5,
        direction=direction,
        evaluator_version="1",
        skip_reason=SkipReason.NO_CLAIMS if score is None else None,
        verdicts=(verdict,) if verdict else (),
    )


def failure(error_type: str = "judge_timeout") -> MetricFailure:
    """Build what is left of a metric that failed."""
    return MetricFailure(
        metric="faithfulness",
        profile="ragtrace",
        error_type=error_type,
        message="late",
        evaluator_version="1",
    )


def a_verdict(label: VerdictLabel, text: str = CHUNK, quote: str | None = CHUNK) -> Verdict:
    """Build a verdict on a claim that is the whole answer."""
    return Verdict(
        claim=Claim(index=0, text=text, start=0, end=len(text)),
        label=label,
        reason="because",
        chunk_ids=("faq-12",),
        quote=quote,
        quote_verified=quote is not None,
    )


def write(path: Path, *answers: JudgedAnswer, ending: RunEnd | None = None, about: RunInfo = ABOUT) -> Path:
    """Write a report."""
    report = open_report(path, about)
    for each in answers:
        report.add(each)
    report.close(ending or RunEnd())
    return path
