"""Open an answer of a trace: its record, every evaluation of it, and what people say of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.answers.carrier import (
    as_carrier,
    is_carrier,
    read_carrier,
    target_span_id,
    told_by,
    without_scores,
)
from ragtrace.answers.port import AnswerGone, AnswerVersion, OpenedAnswer
from ragtrace.answers.summary import AnswerKey
from ragtrace.model import RagRecord, content_sha256
from ragtrace.traces.extract import ExtractRules, extract_records, is_evaluator
from ragtrace.traces.trace import Span, Trace

_OF_PEOPLE: Final = (semconv.FEEDBACK_PREFIX, semconv.REVIEW_PREFIX, f"{semconv.OI_ANNOTATIONS}.")
_NO_RECORD: Final = (
    "Question, chunks and answer can no longer be read from this trace: only what the evaluations say is"
    " shown"
)

_NOBODYS: Final = (
    "Spans of this trace name no tenant, and are not what was judged for this one: only what the evaluations"
    " say is shown"
)


def open_answer(
    trace: Trace,
    key: AnswerKey,
    rules: ExtractRules,
    *,
    read_from: str,
    evaluations: Collection[str] = (),
    is_own: bool = False,
    kept: RagRecord | None = None,
) -> OpenedAnswer:
    """Open the answer on a span of a trace, with the record that the collector reads from the same spans.

    ``trace`` has all spans of the trace id with the carriers. For the key's tenant, those of others are left
    out. Anyone may send spans with a known trace id, so that spans that name no tenant are nobody's: of
    these, only the ``evaluations`` are taken that are known to be the tenant's, and content if it is what
    was judged for the tenant. ``is_own`` says that the place has given the tenant's spans alone.
    ``read_from`` names the place, without secrets. ``kept`` is the record that was judged, for a trace that
    has it no more.

    Raises:
        AnswerGone: the trace has no evaluation of this span.
    """
    trace, nobodys = (trace, ()) if is_own else of_tenant(trace, key.tenant, evaluations)
    carriers = [span for span in trace.spans if is_carrier(span)]
    own = [span for span in carriers if target_span_id(span) == key.span_id]
    if not own:
        raise AnswerGone(_why_gone(trace, key, read_from))
    found = records_in(trace, rules)
    record = found.by_span.get(key.span_id, kept)
    if record is None and nobodys:
        record = _as_judged(own, Trace(trace_id=trace.trace_id, spans=(*trace.spans, *nobodys)), key, rules)
        read = {key.span_id, *(each.span_id for each in record.provenance)} if record else ()
        spans = (*trace.spans, *(span for span in nobodys if span.span_id in read))
        trace = Trace(trace_id=trace.trace_id, spans=spans)
    notices = () if record else (found.fault or (_NOBODYS if nobodys else _NO_RECORD),)
    record = record or told_by(own[0])
    return OpenedAnswer(
        key=key,
        record=record,
        versions=in_order([read_carrier(carrier, record) for carrier in own], _superseded(carriers)),
        trace=trace,
        read_from=read_from,
        feedback=tuple(_feedback(trace, key.span_id, found.by_span)),
        notices=notices,
    )


def in_order(versions: Iterable[AnswerVersion], superseded: Iterable[str] = ()) -> tuple[AnswerVersion, ...]:
    """Say which versions are valid, and return those first, then the newest first."""
    versions = tuple(versions)
    gone = {*superseded, *_superseded_in(versions)}
    judged = [replace(version, is_valid=version.evaluation_id not in gone) for version in versions]
    return tuple(
        sorted(
            judged,
            key=lambda version: (
                not version.is_valid,
                -version.judged.evaluation.started_at_ns,
                version.evaluation_id,
            ),
        )
    )


class TraceRecords(NamedTuple):
    """The answers of a trace by their span; ``fault`` says why there are none."""

    by_span: Mapping[str, RagRecord]
    fault: str = ""


def records_in(trace: Trace, rules: ExtractRules) -> TraceRecords:
    """Read the records of a trace, from its spans as the application sent them."""
    sent = Trace(trace_id=trace.trace_id, spans=tuple(map(without_scores, trace.spans)))
    try:
        records = extract_records(sent, rules).records
    except Exception as exc:  # noqa: BLE001 -- the claims are still worth showing: the notice counts the fault
        return TraceRecords({}, f"{_NO_RECORD} ({type(exc).__name__} while reading its spans)")
    return TraceRecords({record.target.span_id: record for record in reversed(records) if record.target})


def of_tenant(trace: Trace, tenant: str, evaluations: Collection[str] = ()) -> tuple[Trace, tuple[Span, ...]]:
    """Return the tenant's spans, and those that are nobody's."""
    if not tenant:
        return trace, ()
    own, nobodys = list[Span](), list[Span]()
    for span in trace.spans:
        owner = span.resource.attributes.get(semconv.TENANT)
        if owner == tenant or (
            owner is None and is_carrier(span) and as_carrier(span).span_id in evaluations
        ):
            own.append(span)
        elif owner is None:
            nobodys.append(span)
    return Trace(trace_id=trace.trace_id, spans=tuple(own)), tuple(nobodys)


def _as_judged(
    carriers: Sequence[Span], trace: Trace, key: AnswerKey, rules: ExtractRules
) -> RagRecord | None:
    """Return the record that was judged for the tenant: what it sent is no secret to it."""
    record = records_in(trace, rules).by_span.get(key.span_id)
    judged = {carrier.attributes.get(semconv.EVAL_INPUT_SHA256) for carrier in carriers}
    return record if record and content_sha256(record) in judged else None


def _superseded(carriers: Iterable[Span]) -> set[str]:
    """Return the ids that carriers say they supersede; a later one may be on another span of the call."""
    named = ((span.span_id, span.attributes.get(semconv.EVAL_SUPERSEDES)) for span in carriers)
    return {other for own, other in named if isinstance(other, str) and other != own}


def _superseded_in(versions: Sequence[AnswerVersion]) -> set[str]:
    return {each.judged.supersedes for each in versions if each.judged.supersedes != each.evaluation_id}


def _feedback(trace: Trace, span_id: str, by_span: Mapping[str, RagRecord]) -> Iterable[Span]:
    """Yield what people said, unless it is about another answer of the trace."""
    for span in trace.spans:
        if not is_evaluator(span) or not any(key.startswith(_OF_PEOPLE) for key in span.attributes):
            continue
        about = target_span_id(span)
        if about == span_id or about not in by_span:
            yield span


def _why_gone(trace: Trace, key: AnswerKey, read_from: str) -> str:
    if trace.find(key.span_id) is None:
        return (
            f"{read_from} has trace {key.trace_id}, but not its span {key.span_id}, nor an evaluation of it"
        )
    return (
        f"{read_from} has span {key.span_id} of trace {key.trace_id}, but no evaluation of it: it was not"
        " judged yet, or its carriers go to another place"
    )
