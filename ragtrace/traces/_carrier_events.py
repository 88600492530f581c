"""The carrier's events: metrics, then claims, then chunks, with failing ones first in each group.

The order matters, because Jaeger's page shows the first three events of a span.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from ragtrace import semconv
from ragtrace.model import (
    AttributeValue,
    ChunkVerdict,
    Evaluation,
    Fault,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    RagRecord,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.traces._carrier_outcomes import judge_of, keyed, worst_first
from ragtrace.traces._carrier_steps import step_attributes
from ragtrace.traces._carrier_text import explain
from ragtrace.traces._carrier_verdicts import CarrierVerdict, choose
from ragtrace.traces.text import cut_utf8
from ragtrace.traces.trace import SpanEvent

MAX_EVENTS: Final = 128
"""The default limit of readers and collectors for a span's events."""
_MAX_CHUNK_IDS: Final = 32
_MAX_FAULTS: Final = 8
_MAX_ID_BYTES: Final = 256
_MAX_DETAILS: Final = 16
_STEP_NS: Final = 1_000  # Jaeger keeps microseconds
_SUPPORT: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)
_RELEVANCE: Final = (
    VerdictLabel.RELEVANT,
    VerdictLabel.PARTLY_RELEVANT,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.UNJUDGED,
)
_OF_REFERENCE: Final = "reference"
_ORDINARY_KIND: Final = "factual"

Attributes: TypeAlias = dict[str, AttributeValue]


class TimeRange(NamedTuple):
    """A time range in Unix nanoseconds."""

    start_ns: int
    end_ns: int


class _Emitted(NamedTuple):
    """The number of a metric's verdicts on the carrier."""

    claims: int
    chunks: int


def events_of(
    evaluation: Evaluation, record: RagRecord, *, max_claims: int, content: bool, within: TimeRange
) -> tuple[SpanEvent, ...]:
    """Build the events of a carrier, with time stamps inside its interval."""
    outcomes = list(islice(keyed(evaluation), MAX_EVENTS))
    faults = evaluation.blame.faults[: max(0, min(_MAX_FAULTS, MAX_EVENTS - len(outcomes)))]
    chosen = choose(outcomes, max_claims=max_claims, room=MAX_EVENTS - len(outcomes) - len(faults))
    claims_of, chunks_of = chosen.claims_of, chosen.chunks_of
    results = (
        _result(key, each, evaluation, record, _Emitted(claims_of[key], chunks_of[key]), content=content)
        for key, each in worst_first(outcomes)
    )
    drafts = [
        *((semconv.EVALUATION_RESULT, attributes) for attributes in results),
        *((_claim_name(each.verdict), _claim(each, content=content)) for each in chosen.claims),
        *(_chunks(chosen.chunks, record, content=content)),
        *((semconv.BLAME_EVENT, _fault(fault, content=content)) for fault in faults),
    ]
    return tuple(
        SpanEvent(
            name=name,
            time_ns=min(within.start_ns + position * _STEP_NS, within.end_ns),
            attributes=bounded(attributes),
        )
        for position, (name, attributes) in enumerate(drafts)
    )


def _fault(fault: Fault, *, content: bool) -> Attributes:
    told: Attributes = {
        semconv.BLAME_CLASS: fault.blame.value,
        semconv.BLAME_WHY: fault.why,
        semconv.BLAME_CLAIM: fault.claim,
        semconv.BLAME_CHUNK_IDS: tuple(
            cut_utf8(id_, _MAX_ID_BYTES) for id_ in fault.chunk_ids[:_MAX_CHUNK_IDS]
        )
        or None,
        semconv.BLAME_SPAN_ID: fault.span_id or None,
    }
    if content and fault.quote:
        told[semconv.BLAME_QUOTE] = fault.quote
    return told


def bounded(attributes: Attributes) -> Attributes:
    """Keep strings below the length at which Tempo truncates them without a mark."""
    return {
        key: cut_utf8(value, semconv.SAFE_STRING_BYTES) if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None
    }


def _result(
    key: str,
    outcome: MetricOutcome,
    evaluation: Evaluation,
    record: RagRecord,
    emitted: _Emitted,
    *,
    content: bool,
) -> Attributes:
    judge = judge_of(outcome, evaluation)
    return {
        semconv.EVALUATION_NAME: key,
        **_score(outcome),
        semconv.EVALUATION_EXPLANATION: explain(outcome, content=content),
        semconv.RESPONSE_ID: record.response_id,
        semconv.EVALUATOR_ID: f"{outcome.profile}/{outcome.metric}",
        semconv.EVALUATOR_VERSION: outcome.evaluator_version,
        semconv.EVALUATOR_TYPE: _evaluator_type(judge),
        semconv.JUDGE_PROVIDER: judge.provider,
        semconv.JUDGE_MODEL: judge.model,
        semconv.JUDGE_SCREEN: judge.screen or None,
        semconv.JUDGE_INPUT_TOKENS: outcome.usage.input_tokens,
        semconv.JUDGE_OUTPUT_TOKENS: outcome.usage.output_tokens,
        **_counts(outcome, emitted),
        **step_attributes(outcome, content=content),
    }


def _evaluator_type(judge: JudgeIdentity) -> str:
    if judge.is_human:
        return "human"
    return "deterministic" if judge.computes else "llm_judge"


def _score(outcome: MetricOutcome) -> Attributes:
    if isinstance(outcome, MetricFailure):
        return {semconv.ERROR_TYPE: outcome.error_type}
    details = [(name, value) for name, value in outcome.details.items() if math.isfinite(value)]
    return {
        semconv.EVALUATION_SCORE: None if outcome.score is None else float(outcome.score),
        semconv.EVALUATION_LABEL: outcome.label.value,
        semconv.EVAL_SKIP_REASON: outcome.skip_reason.value if outcome.skip_reason else None,
        semconv.THRESHOLD: None if outcome.threshold is None else float(outcome.threshold),
        semconv.PASS_WHEN: outcome.pass_when,
        semconv.DIRECTION: outcome.direction.value,
        semconv.PROMPT_SHA256: outcome.prompt_sha256,
        **{f"{semconv.DETAIL_PREFIX}{name}": float(value) for name, value in details[:_MAX_DETAILS]},
    }


def _counts(outcome: MetricOutcome, emitted: _Emitted) -> Attributes:
    if isinstance(outcome, MetricFailure):
        return {}
    return {
        **_counted(semconv.CLAIMS_PREFIX, outcome.verdicts, emitted.claims),
        **_counted(semconv.CHUNKS_PREFIX, outcome.chunk_verdicts, emitted.chunks),
    }


def _counted(prefix: str, verdicts: Sequence[Verdict | ChunkVerdict], emitted: int) -> Attributes:
    """Count verdicts by label, with zeros for unused labels."""
    if not verdicts:
        return {}
    given = {verdict.label for verdict in verdicts}
    words = [words for words in (_SUPPORT, _RELEVANCE) if given.intersection(words[:-1])] or [_SUPPORT]
    counts = VerdictCounts.of(verdicts)
    return {
        f"{prefix}total": counts.total,
        **{f"{prefix}{label.value}": getattr(counts, label.value) for each in words for label in each},
        f"{prefix}emitted": emitted,
    }


def _claim_name(verdict: Verdict) -> str:
    is_of_reference = verdict.claim.kind == _OF_REFERENCE
    prefix = semconv.REFERENCE_EVENT_PREFIX if is_of_reference else semconv.CLAIM_EVENT_PREFIX
    return f"{prefix}{verdict.label.value}"


def _claim(shown: CarrierVerdict[Verdict], *, content: bool) -> Attributes:
    verdict, claim = shown.verdict, shown.verdict.claim
    is_of_reference = claim.kind == _OF_REFERENCE
    return {
        **(_claim_texts(verdict) if content else {}),
        semconv.CLAIM_CHUNK_IDS: tuple(_short_id(each) for each in verdict.chunk_ids[:_MAX_CHUNK_IDS]),
        semconv.CLAIM_INDEX: claim.index,
        semconv.CLAIM_KIND: None if claim.kind == _ORDINARY_KIND else claim.kind,
        semconv.CLAIM_METRIC: shown.metrics[0],
        semconv.CLAIM_METRICS: _several(shown.metrics),
        semconv.CLAIM_QUOTE_VERIFIED: verdict.quote_verified,
        semconv.REFERENCE_VERDICT if is_of_reference else semconv.CLAIM_VERDICT: verdict.label.value,
        semconv.CLAIM_OFFSET_START: None if is_of_reference else claim.start,
        semconv.CLAIM_OFFSET_END: None if is_of_reference else claim.end,
        semconv.CLAIM_CONFIDENCE: verdict.confidence,
        semconv.CLAIM_SUPPORT: verdict.support,
        semconv.CLAIM_DECIDED_BY: verdict.decided_by and verdict.decided_by.value,
    }


def _claim_texts(verdict: Verdict) -> Attributes:
    quote = verdict.quote
    return {
        semconv.CLAIM_ASSERTION: verdict.claim.text,
        # truncated without a mark, so that the quote is still verbatim in the chunk
        semconv.CLAIM_QUOTE: None if quote is None else cut_utf8(quote, semconv.SAFE_STRING_BYTES, mark=""),
        semconv.CLAIM_REASON: verdict.reason,
    }


def _chunks(
    chosen: Iterable[CarrierVerdict[ChunkVerdict]], record: RagRecord, *, content: bool
) -> Iterator[tuple[str, Attributes]]:
    scores = {chunk.id: chunk.score for chunk in record.chunks}
    for shown in chosen:
        verdict = shown.verdict
        yield (
            f"{semconv.CHUNK_EVENT_PREFIX}{verdict.label.value}",
            {
                semconv.CHUNK_ID: _short_id(verdict.chunk_id),
                semconv.CHUNK_RANK: verdict.rank,
                semconv.CHUNK_LABEL: verdict.label.value,
                semconv.CHUNK_METRIC: shown.metrics[0],
                semconv.CHUNK_METRICS: _several(shown.metrics),
                semconv.CHUNK_REASON: verdict.reason if content else None,
                semconv.CHUNK_CONFIDENCE: verdict.confidence,
                semconv.CHUNK_SCORE: scores.get(verdict.chunk_id),
            },
        )


def _several(metrics: tuple[str, ...]) -> tuple[str, ...] | None:
    return metrics if len(metrics) > 1 else None


def _short_id(chunk_id: str) -> str:
    return cut_utf8(chunk_id, _MAX_ID_BYTES)
