"""Read a carrier back: the evaluation that was written onto a trace, and what is missing from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from ragtrace import semconv
from ragtrace.answers._blame_events import read_blame
from ragtrace.answers._outcome_events import read_judge, read_outcomes
from ragtrace.answers._values import Attributes, flag_of, integer_of, moment_of, number_of, text_of
from ragtrace.answers._verdict_events import EventFaults, EventVerdicts, read_verdicts
from ragtrace.answers.opened import AnswerVersion
from ragtrace.model import (
    Evaluation,
    JudgedAnswer,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Sample,
    Target,
    TargetKind,
    Usage,
    content_sha256,
    evaluator_set_of,
    version_of_set,
)
from ragtrace.traces.attach import carrier_span_id
from ragtrace.traces.trace import Scope, Span

_HELD: Final = "hold"
_ADDED_PREFIXES: Final = (
    semconv.EVAL_PREFIX,
    semconv.SCORE_PREFIX,
    semconv.LABEL_PREFIX,
    semconv.THRESHOLD_PREFIX,
    semconv.PASS_WHEN_PREFIX,
    semconv.COMPAT_STATUS_PREFIX,
    semconv.COMPAT_SCORE_PREFIX,
    f"{semconv.BLAME_EVENT}.",
    f"{semconv.OI_EVALUATIONS}.",
)
_ADDED_EVENTS: Final = (
    semconv.EVALUATION_RESULT,
    semconv.CLAIM_EVENT_PREFIX,
    semconv.REFERENCE_EVENT_PREFIX,
    semconv.CHUNK_EVENT_PREFIX,
    semconv.BLAME_EVENT,
)


def is_carrier(span: Span) -> bool:
    """Return whether the span is a carrier of ragtrace, of its own or in hold mode."""
    return is_held(span) or (
        span.scope.name == semconv.SCOPE_EVALUATION
        and target_span_id(span) is not None
        and _has_outcome(span)
    )


def is_held(span: Span) -> bool:
    """Return whether the span is an answer to which its scores were added in hold mode."""
    return span.attributes.get(semconv.EVAL_MODE) == _HELD and span.scope.name != semconv.SCOPE_EVALUATION


def target_span_id(carrier: Span) -> str | None:
    """Return the span that a carrier is about."""
    if is_held(carrier):
        return carrier.span_id
    linked = (link.span_id for link in carrier.links if link.trace_id == carrier.trace_id)
    named = text_of(carrier.attributes, semconv.TARGET_SPAN_ID)
    return named or next(linked, None) or carrier.parent_span_id


def without_scores(span: Span) -> Span:
    """Return the answer span as the application sent it, without what hold mode added.

    An answer with scores looks like an evaluation, and evaluations have no record.
    """
    if not is_held(span):
        return span
    kept = {key: value for key, value in span.attributes.items() if not key.startswith(_ADDED_PREFIXES)}
    events = tuple(event for event in span.events if not event.name.startswith(_ADDED_EVENTS))
    return replace(span, attributes=kept, events=events)


def as_carrier(span: Span) -> Span:
    """Return the carrier; for an answer with its scores, the carrier that it would have."""
    if not is_held(span):
        return span
    held = read_carrier(span, RagRecord(id="", question=None, chunks=(), answer=None))
    return replace(
        span,
        span_id=held.evaluation_id,
        parent_span_id=span.span_id,
        scope=Scope(name=semconv.SCOPE_EVALUATION, version=span.scope.version),
        attributes={**span.attributes, semconv.TARGET_SPAN_ID: span.span_id},
    )


def target_told(carrier: Span) -> Target:
    """Return the target as the carrier tells it, for an answer whose span cannot be read."""
    told = carrier.attributes
    kind = text_of(told, semconv.TARGET_KIND) or ""
    return Target(
        trace_id=carrier.trace_id,
        span_id=target_span_id(carrier) or carrier.span_id,
        start_ns=moment_of(told, semconv.TARGET_START) or carrier.start_ns,
        end_ns=moment_of(told, semconv.TARGET_END) or carrier.end_ns,
        kind=TargetKind(kind) if kind in list(TargetKind) else TargetKind.ANSWER,
        root_name=text_of(told, semconv.TARGET_ROOT_NAME) or "",
        resource=carrier.resource.attributes,
        resource_schema_url=carrier.resource.schema_url,
    )


def read_carrier(carrier: Span, record: RagRecord) -> AnswerVersion:
    """Read an evaluation from its carrier, or, in hold mode, from the answer span.

    The carrier has what a person looks at. It leaves out, and so does the result: claims and chunks beyond
    its limits, the calls of single metrics, intermediate results beyond 16, and whether an undecided verdict
    was left out by the judge. Explanation and reason of a metric are one text. Outcomes are in one order for
    all places: faithfulness first, then by name.

    Whatever is missing, unreadable or different today becomes a notice, never an exception and never a
    score.
    """
    verdicts, judge = read_verdicts(carrier, record), read_judge(carrier)
    outcomes, unreadable = read_outcomes(carrier, verdicts, judge)
    told = carrier.attributes
    evaluation = Evaluation(
        record_id=record.id,
        outcomes=tuple(outcomes.values()),
        judge=judge,
        evaluator_set=evaluator_set_of((outcome.metric, outcome.profile) for outcome in outcomes.values()),
        evaluator_version=version_of_set([outcome.evaluator_version for outcome in outcomes.values()]),
        run_id=text_of(told, semconv.EVAL_RUN_ID) or "",
        started_at_ns=moment_of(told, semconv.EVAL_STARTED_AT) or carrier.start_ns,
        duration_ms=integer_of(told, semconv.EVAL_DURATION_MS) or 0,
        input_sha256=text_of(told, semconv.EVAL_INPUT_SHA256) or "",
        input_truncated=flag_of(told, semconv.EVAL_INPUT_TRUNCATED),
        usage=_usage(told),
        compromised=flag_of(told, semconv.EVAL_COMPROMISED),
        blame=read_blame(carrier),
        judge_card=text_of(told, semconv.JUDGE_CARD) or "",
    )
    notices = (
        *_about_schema(told),
        *unreadable,
        *_about_record(evaluation, record),
        *_about_room(carrier, outcomes, verdicts),
        *_about_events(verdicts.faults, record),
    )
    return AnswerVersion(
        judged=JudgedAnswer(
            record=record,
            evaluation=evaluation,
            sample=_sample(told),
            carrier_span_id=None if is_held(carrier) else carrier.span_id,
            supersedes=text_of(told, semconv.EVAL_SUPERSEDES) or "",
            cost_usd=number_of(told, semconv.JUDGE_COST_USD),
        ),
        evaluation_id=_evaluation_id(carrier, evaluation),
        carrier=carrier,
        notices=tuple(dict.fromkeys(notices)),
    )


def _has_outcome(span: Span) -> bool:
    keys = (semconv.EVAL_STATUS, semconv.EVAL_STARTED_AT, semconv.SCHEMA)
    return any(key in span.attributes for key in keys) or any(
        key.startswith(semconv.LABEL_PREFIX) for key in span.attributes
    )


def _evaluation_id(carrier: Span, evaluation: Evaluation) -> str:
    if not is_held(carrier):
        return carrier.span_id
    return carrier_span_id(
        trace_id=carrier.trace_id,
        span_id=carrier.span_id,
        evaluator_set=evaluation.evaluator_set,
        evaluator_version=evaluation.evaluator_version,
        tenant=text_of(carrier.resource.attributes, semconv.TENANT) or "",
    )


def _usage(told: Attributes) -> Usage:
    return Usage(
        calls=integer_of(told, semconv.JUDGE_CALLS) or 0,
        input_tokens=integer_of(told, semconv.JUDGE_INPUT_TOKENS) or 0,
        output_tokens=integer_of(told, semconv.JUDGE_OUTPUT_TOKENS) or 0,
        cached_tokens=integer_of(told, semconv.JUDGE_CACHED_TOKENS) or 0,
        reasoning_tokens=integer_of(told, semconv.JUDGE_REASONING_TOKENS) or 0,
        unmetered_calls=integer_of(told, semconv.JUDGE_UNMETERED_CALLS) or 0,
    )


def _sample(told: Attributes) -> Sample | None:
    rule, rate = text_of(told, semconv.SAMPLE_RULE), number_of(told, semconv.SAMPLE_RATE)
    probability = number_of(told, semconv.SAMPLE_PROBABILITY)
    if rule is None:
        return None
    rate = rate if rate is not None else probability
    return None if rate is None else Sample(rule=rule, rate=rate, probability=probability)


def _about_schema(told: Attributes) -> Iterator[str]:
    schema, known = integer_of(told, semconv.SCHEMA), int(semconv.SCHEMA_VERSION)
    if schema is not None and schema > known:
        yield (
            f"A newer ragtrace wrote this carrier (schema version {schema}, and this one reads {known}): what"
            " is new in it is not shown"
        )
    if semconv.SCHEMA not in told:
        yield "This place keeps scores, not the whole carrier: tokens and cost of the run are missing"


def _about_record(evaluation: Evaluation, record: RagRecord) -> Iterator[str]:
    judged = evaluation.input_sha256
    if judged and record.provenance and judged != content_sha256(record):
        yield (
            "The trace reads differently today: question, chunks and answer below are not exactly what the"
            " judge saw"
        )


def _about_room(
    carrier: Span, outcomes: Mapping[str, MetricOutcome], verdicts: EventVerdicts
) -> Iterator[str]:
    """Say how many verdicts the carrier, or the back end, left out."""
    told = {
        text_of(event.attributes, semconv.EVALUATION_NAME): event.attributes
        for event in carrier.events
        if event.name == semconv.EVALUATION_RESULT
    }
    for key, outcome in outcomes.items():
        if not isinstance(outcome, MetricResult):
            continue
        for prefix, kept, noun in (
            (semconv.CLAIMS_PREFIX, len(verdicts.claims.get(key, ())), "claims"),
            (semconv.CHUNKS_PREFIX, len(verdicts.chunks.get(key, ())), "chunks"),
        ):
            total = integer_of(told.get(key, {}), f"{prefix}total") or 0
            if kept < total:
                yield f"{kept:,} of {total:,} {noun} are on the trace; the failing ones first"


def _about_events(faults: EventFaults, record: RagRecord) -> Iterator[str]:
    if faults.unreadable:
        yield f"{_verdicts(faults.unreadable)} on this carrier cannot be read, and left out"
    if faults.without_text:
        yield f"This carrier has no texts (`attach.content` is false): {_in_place(record)}"
    if faults.moved:
        yield f"{_claims(faults.moved)} cannot be marked: the answer is shorter than the one that was judged"
    if faults.unverified:
        yield f"{_quotes(faults.unverified)} not in the chunks any more, and shown as unverified"
    if faults.cut:
        yield f"{_with_texts(faults.cut)} cut at {semconv.SAFE_STRING_BYTES:,} bytes"


def _in_place(record: RagRecord) -> str:
    if record.answer is None:
        return "claims have verdicts but no words, because the answer is not there either"
    return "passages of the answer are shown as its claims"


def _verdicts(number: int) -> str:
    return "1 verdict" if number == 1 else f"{number:,} verdicts"


def _claims(number: int) -> str:
    return "1 claim" if number == 1 else f"{number:,} claims"


def _quotes(number: int) -> str:
    return "1 quote is" if number == 1 else f"{number:,} quotes are"


def _with_texts(number: int) -> str:
    return "1 verdict has a text that was" if number == 1 else f"{number:,} verdicts have texts that were"
