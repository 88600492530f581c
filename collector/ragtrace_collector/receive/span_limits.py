"""Span limits: traces with a span beyond them are forwarded and not judged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

MOST_ATTRIBUTES: Final = 1_000
"""Of a span or an event."""
MOST_EVENTS: Final = 1_000
MOST_LINKS: Final = 1_000
MOST_ATTRIBUTE_BYTES: Final = 4 << 20


def oversized_in(
    request: ExportTraceServiceRequest, trace_ids: Iterable[str], *, body_bytes: int
) -> frozenset[str]:
    """Return the ids of the traces that have a span beyond the limits.

    ``body_bytes`` is the size of the request: values are measured only if one could be too large.
    """
    measure, looked_at = body_bytes > MOST_ATTRIBUTE_BYTES, set(map(bytes.fromhex, trace_ids))
    return frozenset(
        span.trace_id.hex()
        for span in _spans(request)
        if span.trace_id in looked_at and (_has_too_many(span) or (measure and _has_large_value(span)))
    )


def _has_too_many(span: Span) -> bool:
    return (
        len(span.events) > MOST_EVENTS
        or len(span.links) > MOST_LINKS
        or any(len(attributes) > MOST_ATTRIBUTES for attributes in _attributes(span))
    )


def _has_large_value(span: Span) -> bool:
    return span.ByteSize() > MOST_ATTRIBUTE_BYTES and any(
        attribute.value.ByteSize() > MOST_ATTRIBUTE_BYTES
        for attributes in _attributes(span)
        for attribute in attributes
    )


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans


def _attributes(span: Span) -> Iterator[Collection[KeyValue]]:
    yield span.attributes
    for event in span.events:
        yield event.attributes
