"""What is written onto a span while it is held back: more attributes and events, and nothing else changes.

The span is forwarded as protobuf parsed it, with fields that this version of OTLP does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace.model import AttributeValue
from ragtrace.traces._otlp_values import to_request
from ragtrace.traces.trace import Span, SpanEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The attributes and events to add to one span."""

    span_id: str
    attributes: Mapping[str, AttributeValue]
    """Existing keys are skipped, so the application's values stay."""
    events: Sequence[SpanEvent] = ()


def encode_addition(addition: Addition) -> bytes:
    """Encode an addition for ``add_to_spans``.

    Raises:
        CodecError: a value does not fit into OTLP.
    """
    span = Span(
        trace_id="",
        span_id=addition.span_id,
        parent_span_id=None,
        name="",
        start_ns=0,
        end_ns=0,
        attributes=addition.attributes,
        events=tuple(addition.events),
    )
    return to_request([span]).resource_spans[0].scope_spans[0].spans[0].SerializeToString()


def add_to_spans(payload: bytes, additions: Mapping[str, bytes]) -> bytes:
    """Add encoded additions, by span id, to the spans of one trace and to all copies of them.

    ``payload`` is a serialized ``TracesData`` of that trace. It is returned unchanged if no span matches.
    """
    wanted = {bytes.fromhex(span_id): addition for span_id, addition in additions.items()}
    if not any(span_id in payload for span_id in wanted):  # skips parsing if no span can match
        return payload
    request = ExportTraceServiceRequest.FromString(payload)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                if span.span_id in wanted:
                    _add(span, trace_pb2.Span.FromString(wanted[span.span_id]))
    return request.SerializeToString()


def _add(span: trace_pb2.Span, addition: trace_pb2.Span) -> None:
    present = {attribute.key for attribute in span.attributes}
    span.attributes.extend(each for each in addition.attributes if each.key not in present)
    span.events.extend(addition.events)
