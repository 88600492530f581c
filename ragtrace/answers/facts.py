"""The facts of a judged answer by name, without content: a log line; with the question, a row of a list."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ragtrace.answers.summary import AnswerSummary
from ragtrace.model import VerdictLabel

_CLAIMS: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)
FACTS: Final = (
    *("trace_id", "span_id", "tenant", "carrier_span_id", "time", "judged_at", "service", "service_version"),
    *("pipeline", "model", "prompt_version", "session", "label", "reason", "blame"),
    *(f"claims_{label.value}" for label in _CLAIMS),
    *("judge", "evaluator_version", "sample_rule", "sample_probability", "suspicion", "cost_usd", "feedback"),
)


def facts_of(answer: AnswerSummary) -> dict[str, str | float | int | None]:
    """Return the facts without metrics, always in this order. None is content; times are UTC in ISO 8601."""
    told = {
        **answer.key._asdict(),
        "time": _iso(answer.time_ns),
        "judged_at": _iso(answer.judged_ns),
        **{f"claims_{label.value}": getattr(answer.claims, label.value) for label in _CLAIMS},
        "sample_rule": answer.rule,
        "sample_probability": answer.probability,
    }
    return {name: told[name] if name in told else getattr(answer, name) for name in FACTS}


def row_of(answer: AnswerSummary) -> dict[str, str | float | int | None]:
    """Return the facts with the question, for an export or a program that follows answers."""
    return {**facts_of(answer), "question": answer.question}


def metrics_of(answer: AnswerSummary) -> dict[str, dict[str, str | float | None]]:
    """Return label and score of each metric by its name."""
    return {metric.name: {"label": metric.label.value, "score": metric.score} for metric in answer.metrics}


def _iso(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns // 1_000_000 % 1_000:03d}Z"
