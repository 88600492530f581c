"""The carrier's events: one a metric first, then the claims, failing ones first.

Jaeger's page shows the first three events of a span: the order is what people see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.model import (
    AttributeValue,
    Evaluation,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.traces._carrier_outcomes import annotator_kind, explain, keyed
from ragtrace.traces.text import cut_utf8
from ragtrace.traces.trace import SpanEvent

__all__ = ["Interval", "bounded", "events_of"]

MAX_CLAIM_EVENTS: Final = 90
MAX_EVENTS: Final = 128
"""What readers and collectors keep of a span's events by default."""
_MAX_CHUNK_IDS: Final = 32
_MAX_CHUNK_ID_BYTES: Final = 256
_STEP_NS: Final = 1_000  # Jaeger keeps microseconds
_ORDER: Final = {
    VerdictLabel.CONTRADICTED: 0,
    VerdictLabel.UNSUPPORTED: 1,
    VerdictLabel.IRRELEVANT: 2,
    VerdictLabel.UNJUDGED: 3,
    VerdictLabel.PARTLY_RELEVANT: 4,
    VerdictLabel.SUPPORTED: 5,
    VerdictLabel.RELEVANT: 6,
}
_ABOUT_CLAIMS: Final = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
    VerdictLabel.SUPPORTED,
)


class Interval(NamedTuple):
    """From when to when, in Unix nanoseconds."""

    start_ns: int
    end_ns: int


class _Entry(NamedTuple):
    """A claim of a metric."""

    key: str
    verdict: Verdict


def events_of(
    evaluation: Evaluation, record: RagRecord, *, max_claims: int, content: bool, within: Interval
) -> tuple[SpanEvent, ...]:
    """Build the events of a carrier, with time stamps inside its interval."""
    outcomes = list(keyed(evaluation))[:MAX_EVENTS]
    room = min(max_claims, MAX_CLAIM_EVENTS, MAX_EVENTS - len(outcomes))
    shown = _failing_first(outcomes)[: max(0, room)]
    emitted = Counter(entry.key for entry in shown)
    drafts = [
        *(
            (
                semconv.EVALUATION_RESULT,
                _result(key, outcome, evaluation, record, emitted[key], content=content),
            )
            for key, outcome in outcomes
        ),
        *(
            (f"{semconv.CLAIM_EVENT_PREFIX}{entry.verdict.label.value}", _claim(entry, content=content))
            for entry in shown
        ),
    ]
    return tuple(
        SpanEvent(
            name=name,
            time_ns=min(within.start_ns + position * _STEP_NS, within.end_ns),
            attributes=bounded(attributes),
        )
        for position, (name, attributes) in enumerate(drafts)
    )


def bounded(attributes: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Keep strings below the length at which Tempo cuts them without a mark."""
    return {
        key: cut_utf8(value, semconv.SAFE_STRING_BYTES) if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None
    }


def _failing_first(outcomes: Sequence[tuple[str, MetricOutcome]]) -> list[_Entry]:
    entries = [
        _Entry(key, verdict)
        for key, outcome in outcomes
        if isinstance(outcome, MetricResult)
        for verdict in outcome.verdicts
    ]
    return sorted(entries, key=lambda entry: _ORDER[entry.verdict.label])


def _result(
    key: str,
    outcome: MetricOutcome,
    evaluation: Evaluation,
    record: RagRecord,
    emitted: int,
    *,
    content: bool,
) -> dict[str, AttributeValue]:
    judged_by = "deterministic" if annotator_kind(evaluation) == "CODE" else "llm_judge"
    return {
        semconv.EVALUATION_NAME: key,
        **_score(outcome),
        semconv.EVALUATION_EXPLANATION: explain(outcome, content=content),
        semconv.RESPONSE_ID: record.response_id,
        semconv.EVALUATOR_ID: f"{outcome.profile}/{outcome.metric}",
        semconv.EVALUATOR_VERSION: outcome.evaluator_version,
        semconv.EVALUATOR_TYPE: judged_by,
        semconv.JUDGE_MODEL: evaluation.judge.model,
        semconv.JUDGE_INPUT_TOKENS: outcome.usage.input_tokens,
        semconv.JUDGE_OUTPUT_TOKENS: outcome.usage.output_tokens,
        **_claim_counts(outcome, emitted),
    }


def _score(outcome: MetricOutcome) -> dict[str, AttributeValue]:
    if isinstance(outcome, MetricFailure):
        return {semconv.ERROR_TYPE: outcome.error_type}
    return {
        semconv.EVALUATION_SCORE: None if outcome.score is None else float(outcome.score),
        semconv.EVALUATION_LABEL: outcome.label.value,
        semconv.THRESHOLD: float(outcome.threshold),
        semconv.PROMPT_SHA256: outcome.prompt_sha256,
    }


def _claim_counts(outcome: MetricOutcome, emitted: int) -> dict[str, AttributeValue]:
    if isinstance(outcome, MetricFailure):
        return {}
    counts = outcome.counts
    return {
        f"{semconv.CLAIMS_PREFIX}total": counts.total,
        **{f"{semconv.CLAIMS_PREFIX}{label.value}": getattr(counts, label.value) for label in _ABOUT_CLAIMS},
        f"{semconv.CLAIMS_PREFIX}emitted": emitted,
    }


def _claim(entry: _Entry, *, content: bool) -> dict[str, AttributeValue]:
    verdict = entry.verdict
    ids = tuple(cut_utf8(chunk_id, _MAX_CHUNK_ID_BYTES) for chunk_id in verdict.chunk_ids[:_MAX_CHUNK_IDS])
    return {
        **(_claim_texts(verdict) if content else {}),
        semconv.CLAIM_CHUNK_IDS: ids,
        semconv.CLAIM_INDEX: verdict.claim.index,
        semconv.CLAIM_METRIC: entry.key,
        semconv.CLAIM_QUOTE_VERIFIED: verdict.quote_verified,
        semconv.CLAIM_VERDICT: verdict.label.value,
        semconv.CLAIM_ANSWER_START: verdict.claim.start,
        semconv.CLAIM_ANSWER_END: verdict.claim.end,
        semconv.CLAIM_CONFIDENCE: verdict.confidence,
    }


def _claim_texts(verdict: Verdict) -> dict[str, AttributeValue]:
    quote = verdict.quote
    return {
        semconv.CLAIM_ASSERTION: verdict.claim.text,
        # cut without a mark: what is left is still verbatim in the chunk
        semconv.CLAIM_QUOTE: None if quote is None else cut_utf8(quote, semconv.SAFE_STRING_BYTES, mark=""),
        semconv.CLAIM_REASON: verdict.reason,
    }
