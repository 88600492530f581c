"""The loop guard: drops what comes back to a collector, its own carriers and spans that it already has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.traces.otlp import TraceSlice, drop_spans
from ragtrace_collector.store.trace_key import trace_id_of


def has_own_scopes(request: ExportTraceServiceRequest) -> bool:
    """Return whether a scope says that its spans are a collector's own."""
    return any(
        scope_spans.scope.name in semconv.OWN_SCOPES
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
    )


def drop_own_scopes(request: ExportTraceServiceRequest) -> int:
    """Drop the spans of such scopes, and return how many: they are neither judged nor forwarded."""
    dropped = 0
    for resource_spans in request.resource_spans:
        for position in reversed(range(len(resource_spans.scope_spans))):
            scope_spans = resource_spans.scope_spans[position]
            if scope_spans.scope.name in semconv.OWN_SCOPES:
                dropped += len(scope_spans.spans)
                del resource_spans.scope_spans[position]
    return dropped


def may_hold_carriers(data: bytes) -> bool:
    """Return whether `drop_carriers` could find something in what these bytes say, in any encoding.

    Few requests have a carrier whose scope got lost on the way, and looking at every attribute is slow.
    """
    return _SOUGHT in data


def drop_carriers(request: ExportTraceServiceRequest) -> int:
    """Drop spans with the attributes that only carriers have, whatever their scope; return how many."""
    dropped = 0

    def is_carrier(span: trace_pb2.Span) -> bool:
        nonlocal dropped
        found = {attribute.key for attribute in span.attributes} >= _OF_CARRIERS
        dropped += found
        return found

    drop_spans(request, is_carrier)
    return dropped


def drop_traces(request: ExportTraceServiceRequest, slices: Sequence[TraceSlice]) -> None:
    """Drop the spans of these traces."""
    trace_ids = {bytes.fromhex(trace_id_of(part.trace_id)) for part in slices}
    drop_spans(request, lambda span: span.trace_id in trace_ids)


_SOUGHT: Final = semconv.EVAL_STATUS.encode()
_OF_CARRIERS: Final = {semconv.EVAL_STATUS, semconv.TARGET_SPAN_ID}
"""Feedback has only the second. An answer span with its scores on it (hold mode) has only the first."""
