"""Streamed answers whose reader went away."""

from __future__ import annotations

from ragtrace import semconv
from ragtrace.traces.trace import Span, StatusCode

__all__ = ["is_abandoned"]


def is_abandoned(span: Span) -> bool:
    """Tell whether a stream ended before the model did: it never said why it stopped."""
    attributes = span.attributes
    if attributes.get(semconv.RAG_STREAM_COMPLETE) is False:
        return True
    is_genai_stream = any(
        attributes.get(key) is True for key in (semconv.REQUEST_STREAM, semconv.IS_STREAMING_OPENLLMETRY)
    )
    if is_genai_stream:
        return semconv.OUTPUT_MESSAGES in attributes and not attributes.get(semconv.RESPONSE_FINISH_REASONS)
    # OpenInference sets the status when the stream is over, and knows no reason for some APIs
    is_stream = any(event.name == semconv.OI_FIRST_TOKEN for event in span.events)
    return is_stream and span.status_code is StatusCode.UNSET and semconv.OI_FINISH_REASON not in attributes
