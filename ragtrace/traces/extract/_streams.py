"""Answers that broke off: what each instrumentation writes of a stream that was not read to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ragtrace import semconv
from ragtrace.traces.extract._messages import messages_of
from ragtrace.traces.trace import Span, StatusCode

_WENT_AWAY: Final = "the answer was streamed and its reader went away before the end"
_FAILED: Final = "the answer was streamed and broke off with an error: `error.type` of the span names it"
_SAYS_ERROR: Final = (
    "the answer broke off: the reason for which the model stopped is `error`, as OpenTelemetry's "
    "instrumentations write of streams that were not read to their end"
)
_ERROR: Final = "error"


def broken_off(span: Span) -> str | None:
    """Say why the answer on the span is not whole, if a stream ended before the model did.

    A missing reason alone tells nothing: most of those who stream answers by hand know none.
    """
    if _is_ours(span):
        return _by_our_mark(span)
    if any(reason == _ERROR for reason in _reasons(span)):
        return _SAYS_ERROR
    if span.attributes.get(semconv.IS_STREAMING_OPENLLMETRY) is True:
        has_answer = semconv.OUTPUT_MESSAGES in span.attributes
        return _WENT_AWAY if has_answer and not any(_reasons(span)) else None
    if span.attributes.get(semconv.REQUEST_STREAM) is True and span.status_code is StatusCode.ERROR:
        return _FAILED
    # OpenInference sets the status when the stream is over, and knows no reason for some APIs
    is_stream = any(event.name == semconv.OI_FIRST_TOKEN for event in span.events)
    is_open = span.status_code is StatusCode.UNSET and semconv.OI_FINISH_REASON not in span.attributes
    return _WENT_AWAY if is_stream and is_open else None


def _is_ours(span: Span) -> bool:
    attributes = span.attributes
    is_marked = semconv.RAG_KIND in attributes or semconv.RAG_STREAM_COMPLETE in attributes
    return is_marked or span.scope.name == semconv.SCOPE_CAPTURE


def _by_our_mark(span: Span) -> str | None:
    """Believe ragtrace's own mark. A span without one is whole: versions that marked broken streams alone."""
    if span.attributes.get(semconv.RAG_STREAM_COMPLETE) is not False:
        return None
    return _FAILED if span.status_code is StatusCode.ERROR else _WENT_AWAY


def _reasons(span: Span) -> Iterator[str]:
    """Yield why the model stopped writing its first choice, as the span says and as the message does."""
    listed = span.attributes.get(semconv.RESPONSE_FINISH_REASONS)
    messages, _ = messages_of(span.attributes.get(semconv.OUTPUT_MESSAGES))
    first = listed[0] if isinstance(listed, tuple) and listed else listed
    for reason in (first, messages[0].get("finish_reason") if messages else None):
        if isinstance(reason, str) and reason:
            yield reason
