"""Summaries of answers for the tests of the index."""

from __future__ import annotations

from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.model import Label, VerdictCounts

NOON_NS = 1_795_262_400_000_000_000
"""A noon in UTC."""
MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS


def hex_id(number: int, digits: int = 16) -> str:
    return f"{number:0{digits}x}"


def a_metric(score: float | None = 1.0, name: str = "faithfulness") -> MetricSummary:
    label = Label.SKIPPED if score is None else Label.PASS if score >= 0.5 else Label.FAIL
    return MetricSummary(name=name, label=label, score=score)


def a_row(
    number: int = 1,
    score: float | None = 1.0,
    *,
    trace: int | None = None,
    tenant: str = "",
    minute: int = 0,
    supersedes: int | None = None,
    carrier: int | None = None,
    **fields: object,
) -> AnswerSummary:
    """Build a summary; ``number`` makes its span's and its carrier's ids."""
    metric = a_metric(score)
    given: dict[str, object] = {
        "key": AnswerKey(hex_id(number if trace is None else trace, 32), hex_id(number), tenant),
        "carrier_span_id": hex_id(1_000_000 + number if carrier is None else carrier),
        "supersedes": "" if supersedes is None else hex_id(supersedes),
        "time_ns": NOON_NS + minute * MINUTE_NS,
        "judged_ns": NOON_NS + (minute + 1) * MINUTE_NS,
        "service": "support-bot",
        "model": "gpt-4o-mini",
        "prompt_version": "7",
        "label": metric.label,
        "metrics": (metric,),
        "claims": VerdictCounts(supported=1, contradicted=int(metric.label is Label.FAIL)),
        "probability": 1.0,
        **fields,
    }
    return AnswerSummary(**given)  # type: ignore[arg-type]
