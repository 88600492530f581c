"""The loop guard: removes the collector's own carriers, and spans that it already has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.traces.otlp import TraceSlice, drop_spans
from ragtrace_collector.store.trace_key import trace_id_of


def drop_own_spans(request: ExportTraceServiceRequest, body: bytes) -> int:
    """Remove carriers that a pipeline sent back: they are neither judged nor forwarded. Return how many.

    Carriers are identified by scope or, if something on the way lost it, by attributes of carriers only.
    """
    dropped = 0
    for resource_spans in request.resource_spans:
        for position in reversed(range(len(resource_spans.scope_spans))):
            scope_spans = resource_spans.scope_spans[position]
            if scope_spans.scope.name in semconv.OWN_SCOPES:
                dropped += len(scope_spans.spans)
                del resource_spans.scope_spans[position]
    # search the bytes first: almost no request has carriers, and reading each attribute is slow
    return dropped + (_drop_carriers(request) if _SOUGHT in body else 0)


def drop_traces(request: ExportTraceServiceRequest, slices: Sequence[TraceSlice]) -> None:
    """Remove the spans of these traces."""
    trace_ids = {bytes.fromhex(trace_id_of(part.trace_id)) for part in slices}
    drop_spans(request, lambda span: span.trace_id in trace_ids)


_SOUGHT: Final = semconv.EVAL_STATUS.encode()
_OF_CARRIERS: Final = {semconv.EVAL_STATUS, semconv.TARGET_SPAN_ID}
"""Feedback has only the second; an answer span with scores on it (hold mode) has only the first."""


def _drop_carriers(request: ExportTraceServiceRequest) -> int:
    dropped = 0

    def is_carrier(span: trace_pb2.Span) -> bool:
        nonlocal dropped
        found = {attribute.key for attribute in span.attributes} >= _OF_CARRIERS
        dropped += found
        return found

    drop_spans(request, is_carrier)
    return dropped
