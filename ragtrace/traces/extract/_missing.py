"""Explain missing texts."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace import semconv
from ragtrace.model import Gap, Part, SkipReason
from ragtrace.traces.extract._switches import switches_of
from ragtrace.traces.extract._unread import unread_text
from ragtrace.traces.trace import Span, StatusCode

_REFS = (semconv.INPUT_MESSAGES_REF, semconv.OUTPUT_MESSAGES_REF)


def missing_text(part: Part, spans: Sequence[Span]) -> Gap:
    """Explain a part that is missing on all these spans."""
    return Gap(part=part, reason=_reason(part, spans), detail=_detail(part, spans))


def missing_answer(spans: Sequence[Span]) -> Gap:
    """Explain an answer that is missing on all these spans: the call may have failed first."""
    failed = next((span for span in spans if span.status_code is StatusCode.ERROR), None)
    if failed is None:
        return missing_text(Part.ANSWER, spans)
    detail = f"span {failed.name!r} ended in an error and no answer was recorded"
    return Gap(part=Part.ANSWER, reason=SkipReason.FAILED_CALL, detail=detail)


def missing_documents(span: Span) -> Gap:
    """Explain a retrieval without documents."""
    if any(key.startswith("db.") for key in span.attributes) and not span.dropped_attributes_count:
        detail = (
            f"span {span.name!r} records a query without its results: record the chunks with "
            "`ragtrace.retrieval`, or turn on the content of the database's instrumentation if it has any"
        )
        return Gap(part=Part.CONTEXT, reason=SkipReason.NO_CONTENT, detail=detail)
    return missing_text(Part.CONTEXT, [span])


def _reason(part: Part, spans: Sequence[Span]) -> SkipReason:
    if any(_is_redacted(part, span) for span in spans):
        return SkipReason.REDACTED
    if _capture_is_off(spans) or not any(span.dropped_attributes_count for span in spans):
        return SkipReason.NO_CONTENT
    return SkipReason.INCOMPLETE


def _detail(part: Part, spans: Sequence[Span]) -> str:
    names = ", ".join(dict.fromkeys(repr(span.name) for span in spans)) or "any span"
    what = f"the {part} is not on {names}"
    if any(_is_redacted(part, span) for span in spans):
        return f"{what}: the redaction hook removed it"
    if _capture_is_off(spans):
        return f"{what}: content capture is off; turn it on with `ragtrace.instrument(capture_content=True)`"
    if any(key in span.attributes for span in spans for key in _REFS):
        return (
            f"{what}: the instrumentation uploaded the messages elsewhere; let it write them to spans as well"
        )
    dropped = sum(span.dropped_attributes_count for span in spans)
    if dropped:
        return f"{what}: {dropped} attributes were dropped; raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
    if (unread := unread_text(spans)) is not None:
        return f"{what}, and content is on: {unread.advice}"
    return f"{what}: {switches_of(spans)}"


def _is_redacted(part: Part, span: Span) -> bool:
    marks = span.attributes.get(semconv.RAG_REDACTED)
    return isinstance(marks, tuple) and part in marks


def _capture_is_off(spans: Sequence[Span]) -> bool:
    return any(span.attributes.get(semconv.RAG_CAPTURE) is False for span in spans)
