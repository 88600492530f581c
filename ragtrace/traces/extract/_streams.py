"""Detect incomplete answers: the marks of each instrumentation for a stream that was not read to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ragtrace import semconv
from ragtrace.traces.extract._messages import messages_of
from ragtrace.traces.trace import Span, StatusCode

WENT_AWAY: Final = "the answer was streamed and its reader went away before the end"
_FAILED: Final = "the answer was streamed and broke off with an error: `error.type` of the span names it"
_SAYS_ERROR: Final = (
    "the answer broke off: the reason for which the model stopped is `error`, as OpenTelemetry's "
    "instrumentations write of streams that were not read to their end"
)
_ERROR: Final = "error"


def broken_off(span: Span) -> str | None:
    """Return why the answer on the span is incomplete, if the stream broke off.

    A missing finish reason alone means nothing, because most hand-written streaming code sets none.
    """
    if _is_ours(span):
        return _by_our_mark(span)
    if any(reason == _ERROR for reason in _reasons(span)):
        return _SAYS_ERROR
    if span.attributes.get(semconv.IS_STREAMING_OPENLLMETRY) is True:
        has_answer = semconv.OUTPUT_MESSAGES in span.attributes
        return WENT_AWAY if has_answer and not any(_reasons(span)) else None
    if span.attributes.get(semconv.REQUEST_STREAM) is True and span.status_code is StatusCode.ERROR:
        return _FAILED
    # OpenInference sets the status at the end of the stream, and has no finish reason for some APIs
    is_stream = any(event.name == semconv.OI_FIRST_TOKEN for event in span.events)
    is_open = span.status_code is StatusCode.UNSET and semconv.OI_FINISH_REASON not in span.attributes
    return WENT_AWAY if is_stream and is_open else None


_LEFT: Final = re.compile(r"cancel|generatorexit|disconnect|abort|brokenpipe|client ?closed", re.IGNORECASE)


def left_by_reader(span: Span) -> bool:
    """Return whether the span records that who waited for it went away."""
    events = (event.attributes.get("exception.type") for event in span.events if event.name == "exception")
    kinds = (*events, span.attributes.get(semconv.ERROR_TYPE))
    return any(isinstance(each, str) and _LEFT.search(each) for each in kinds) or (
        span.status_code is StatusCode.ERROR and bool(_LEFT.search(span.status_message))
    )


def ended_in_error(span: Span) -> str | None:
    """Return why the answer on a span that ended in an error is no whole one."""
    if span.status_code is not StatusCode.ERROR:
        return None
    return f"span {span.name!r} ended in an error: its answer is only what came before"


def _is_ours(span: Span) -> bool:
    attributes = span.attributes
    is_marked = semconv.RAG_KIND in attributes or semconv.RAG_STREAM_COMPLETE in attributes
    return is_marked or span.scope.name == semconv.SCOPE_CAPTURE


def _by_our_mark(span: Span) -> str | None:
    """Read ragtrace's own mark. Without one, it is complete: old versions marked only broken streams."""
    if span.attributes.get(semconv.RAG_STREAM_COMPLETE) is not False:
        return None
    return _FAILED if span.status_code is StatusCode.ERROR else WENT_AWAY


def _reasons(span: Span) -> Iterator[str]:
    """Yield the finish reasons of the first choice, from the span and from the message."""
    listed = span.attributes.get(semconv.RESPONSE_FINISH_REASONS)
    messages, _ = messages_of(span.attributes.get(semconv.OUTPUT_MESSAGES))
    first = listed[0] if isinstance(listed, tuple) and listed else listed
    for reason in (first, messages[0].get("finish_reason") if messages else None):
        if isinstance(reason, str) and reason:
            yield reason
