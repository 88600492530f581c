"""Extract records from a trace, or the reasons for having none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragtrace import semconv
from ragtrace.model import RagRecord
from ragtrace.traces.extract._calls import (
    Call,
    SpanTree,
    find_calls,
    is_evaluator,
    judges_an_answer,
    read_spans,
    under_test,
    without_skew,
)
from ragtrace.traces.extract._rules import AttributeMapping, ExtractRules
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.extract._unread import Unread, unread_text
from ragtrace.traces.extract.conventions import stores_vectors
from ragtrace.traces.extract.record import record_of, with_references
from ragtrace.traces.text import flat
from ragtrace.traces.trace import Span, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionNote:
    """Why a span was not used, for ``ragtrace explain``."""

    text: str
    """One sentence, without content."""
    span_id: str | None = None
    span_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The records of a trace."""

    records: tuple[RagRecord, ...]
    """One per RAG call, in order of start."""
    notes: tuple[ExtractionNote, ...] = ()
    unread: Unread | None = None
    """What a trace without records holds that nothing reads; ``None`` if it only belongs to an evaluator, or
    holds no text."""


_DEFAULT: Final = ExtractRules()


def extract_records(trace: Trace, rules: ExtractRules = _DEFAULT) -> Extraction:
    """Find every RAG call of a trace: its question, its chunks and its answer.

    The rules may map the user's own attributes, and may allow a prompt as the context.

    It is a pure function: the same spans give the same records, in any order. A missing or damaged part
    becomes a [`Gap`][ragtrace.model.Gap] of the record, never an exception.
    """
    recorded, trace = trace, without_skew(trace)
    tree = SpanTree(trace)
    judged, notes = _without_evaluators(trace, tree, rules.mapping)
    ingested = {tree.root_of(span).span_id for span in trace.spans if stores_vectors(span)}
    calls = [
        call
        for call in find_calls(tree, judged)
        if _has_steps(call) and not (ingested and _ingests(call, tree, ingested))
    ]
    read = [record_of(call, tree, rules) for call in calls]
    if trace is not recorded:
        read = [_at_recorded_times(record, recorded) for record in read]
    records = with_references(read, calls, trace, tree)
    unread = unread_text(trace.spans) if not calls and not notes and not _roles(judged) else None
    return Extraction(records=records, notes=(*notes, *_unused(judged, calls, unread)), unread=unread)


def _at_recorded_times(record: RagRecord, trace: Trace) -> RagRecord:
    span = trace.find(record.target.span_id) if record.target else None
    if record.target is None or span is None:
        return record
    return replace(record, target=replace(record.target, start_ns=span.start_ns, end_ns=span.end_ns))


def _without_evaluators(
    trace: Trace, tree: SpanTree, mapping: AttributeMapping | None
) -> tuple[Sequence[SpanReading], list[ExtractionNote]]:
    """Read the spans that may belong to a RAG call, and note those that do not."""
    marked = {span.span_id for span in trace.spans if is_evaluator(span)}
    pending = {
        span.span_id
        for span in trace.spans
        if span.attributes.get(semconv.LOGFIRE_SPAN_TYPE) == semconv.LOGFIRE_PENDING
    }
    other = marked | pending
    readings = read_spans((each for each in trace.spans if each.span_id not in other), mapping)
    evaluators = marked | _evaluating(readings, tree)
    guards = {each.span.span_id for each in readings if each.role is Role.GUARDRAIL}
    ids = [span.span_id for span in trace.spans]
    below = tree.nearest_above(ids, evaluators).keys() | evaluators
    guarded = tree.nearest_above(ids, guards).keys() | guards
    if not any(each.role is Role.GENERATION and each.span.span_id not in guarded for each in readings):
        guarded = guards  # the guardrail surrounds the application
    unused = (
        (below, "belongs to an evaluator: evaluations are never evaluated"),
        (pending, "is a placeholder that Logfire writes when a span starts"),
        (guarded - below, "belongs to a guardrail, which does not answer"),
    )
    notes = [_note(span, why) for span in trace.spans for among, why in unused if span.span_id in among]
    aside = below | guarded
    return tuple(each for each in readings if each.span.span_id not in aside), notes


def _evaluating(readings: Sequence[SpanReading], tree: SpanTree) -> set[str]:
    """Return the spans of other tools' evaluations: they are given an answer to judge.

    A step of an application may be given its own answer, too; it lies in a call that was asked the question.
    """
    evaluating = {each.span.span_id: each for each in readings if judges_an_answer(each)}
    asked = {
        each.span.span_id
        for each in readings
        if each.role is Role.CALL and each.question and each.span.span_id not in evaluating
    }
    inside = tree.nearest_above(evaluating, asked).keys()
    own = {flat(each.said) for each in readings if each.role is Role.GENERATION and each.said}
    return {
        span_id
        for span_id, each in evaluating.items()
        if each.role is Role.EVALUATOR or span_id not in inside or under_test(each) not in own
    }


def _has_steps(call: Call) -> bool:
    """Return whether the call has a retrieval, a generation or an answer; else it is another workflow."""
    if call.of(Role.RETRIEVAL, Role.RERANK, Role.GENERATION):
        return True
    own = call.own
    return own is not None and (own.convention == "ragtrace" or own.answer is not None)


def _ingests(call: Call, tree: SpanTree, ingested: set[str]) -> bool:
    """Return whether a call only prepares documents for a vector store: nobody asked, nothing is found."""
    is_asked = call.own is not None and call.own.question is not None
    is_below = tree.root_of(call.members[0].span).span_id in ingested
    return is_below and not is_asked and not call.of(Role.RETRIEVAL, Role.RERANK)


def _unused(
    readings: Sequence[SpanReading], calls: Sequence[Call], unread: Unread | None
) -> list[ExtractionNote]:
    used = {member.span.span_id for call in calls for member in call.members}
    notes = [
        _note(reading.span, f"is a {reading.role} outside of any RAG call")
        for reading in readings
        if reading.span.span_id not in used and reading.role is not Role.STEP
    ]
    if not calls:
        notes.append(ExtractionNote(text=_why_none(_roles(readings), unread)))
    return notes


def _roles(readings: Sequence[SpanReading]) -> Sequence[str]:
    return sorted({str(reading.role) for reading in readings if reading.role is not Role.STEP})


def _why_none(roles: Sequence[str], unread: Unread | None) -> str:
    if roles:
        return f"the trace has only {' and '.join(roles)} spans: a RAG call has a retrieval and a generation"
    if unread is not None:
        return f"no span follows a convention that ragtrace reads; {unread.advice}"
    return (
        "no span follows a convention that ragtrace reads, and none holds text: look for `ragtrace.kind`, "
        "`gen_ai.operation.name` or `openinference.span.kind`, or map your own attributes"
    )


def _note(span: Span, text: str) -> ExtractionNote:
    return ExtractionNote(text=text, span_id=span.span_id, span_name=span.name)
