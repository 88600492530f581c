"""The facts of a judged answer by name, without content: a log line; with the question, a row of a list."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ragtrace.answers.summary import AnswerSummary
from ragtrace.model import VerdictLabel

CLAIM_VERDICTS: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)


def facts_of(answer: AnswerSummary) -> dict[str, str | float | int | None]:
    """Return the facts without metrics, always in this order. None is content; times are UTC in ISO 8601."""
    return {
        "trace_id": answer.key.trace_id,
        "span_id": answer.key.span_id,
        "tenant": answer.key.tenant,
        "carrier_span_id": answer.carrier_span_id,
        "time": _iso(answer.time_ns),
        "judged_at": _iso(answer.judged_ns),
        "service": answer.service,
        "service_version": answer.service_version,
        "pipeline": answer.pipeline,
        "model": answer.model,
        "prompt_version": answer.prompt_version,
        "session": answer.session,
        "label": answer.label.value,
        "reason": answer.reason,
        "blame": answer.blame,
        **{f"claims_{label.value}": getattr(answer.claims, label.value) for label in CLAIM_VERDICTS},
        "judge": answer.judge,
        "evaluator_version": answer.evaluator_version,
        "sample_rule": answer.rule,
        "sample_probability": answer.probability,
        "suspicion": answer.suspicion,
        "cost_usd": answer.cost_usd,
        "feedback": answer.feedback,
    }


def row_of(answer: AnswerSummary) -> dict[str, str | float | int | None]:
    """Return the facts with the question, for an export or a program that follows answers."""
    return {**facts_of(answer), "question": answer.question}


def metrics_of(answer: AnswerSummary) -> dict[str, dict[str, str | float | None]]:
    """Return label and score of each metric by its name."""
    return {metric.name: {"label": metric.label.value, "score": metric.score} for metric in answer.metrics}


def _iso(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns // 1_000_000 % 1_000:03d}Z"
