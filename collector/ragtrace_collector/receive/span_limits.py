"""Span limits: traces with a span beyond them are forwarded and not judged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLimits:
    """The limits of one span that is judged."""

    attributes: int = 1_000
    attribute_bytes: int = 4 << 20
    events: int = 1_000
    links: int = 1_000

    def exceeded_in(
        self, request: ExportTraceServiceRequest, trace_ids: Iterable[str], *, body_bytes: int
    ) -> frozenset[str]:
        """Return the ids of the traces that have a span beyond the limits.

        ``body_bytes`` is the size of the request: values are measured only if one could be too large.
        """
        measure, looked_at = body_bytes > self.attribute_bytes, set(map(bytes.fromhex, trace_ids))
        return frozenset(
            span.trace_id.hex()
            for span in _spans(request)
            if span.trace_id in looked_at
            and (self._is_exceeded(span) or (measure and self._has_large_value(span)))
        )

    def _is_exceeded(self, span: Span) -> bool:
        return (
            len(span.attributes) > self.attributes
            or len(span.events) > self.events
            or len(span.links) > self.links
            or (
                len(span.events) > 0 and any(len(event.attributes) > self.attributes for event in span.events)
            )
        )

    def _has_large_value(self, span: Span) -> bool:
        return span.ByteSize() > self.attribute_bytes and any(
            attribute.value.ByteSize() > self.attribute_bytes
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
