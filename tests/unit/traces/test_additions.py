"""What is written onto a held span, and that nothing else of it changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.traces.attach import Addition, add_to_spans, encode_addition
from ragtrace.traces.otlp import drop_spans, encode, split_by_trace
from ragtrace.traces.trace import SpanEvent
from tests.rag_spans import rag_trace
from tests.unit.traces.strategies import spans

UNKNOWN = b"\xa2\x1f\x02hi"
"""Field 500, which no message of OTLP has."""
ROOT = rag_trace(0)[0].span_id
ADDITION = encode_addition(
    Addition(
        span_id=ROOT,
        attributes={"ragtrace.pass": False, "ragtrace.kind": "other"},
        events=[SpanEvent(name="ragtrace.claim.contradicted", time_ns=5, attributes={"n": 1})],
    )
)


def parsed(payload: bytes) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(payload)


def with_unknown_fields(payload: bytes) -> bytes:
    """Add a field of a later version of OTLP to the request, its resources, scopes and spans."""
    request = parsed(payload)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                span.dropped_events_count = 7
                span.MergeFromString(UNKNOWN)
            scope_spans.MergeFromString(UNKNOWN)
        resource_spans.MergeFromString(UNKNOWN)
    return request.SerializeToString() + UNKNOWN


def taken_off(payload: bytes, attributes: int, events: int) -> bytes:
    """Undo an addition to the first span."""
    request = parsed(payload)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    del span.attributes[len(span.attributes) - attributes :]
    del span.events[len(span.events) - events :]
    return request.SerializeToString()


def test_only_what_is_added_differs() -> None:
    original = with_unknown_fields(encode(rag_trace(0)))
    written = add_to_spans(original, {ROOT: ADDITION})
    span = parsed(written).resource_spans[0].scope_spans[0].spans[0]
    assert (span.attributes[-1].key, span.events[-1].name) == ("ragtrace.pass", "ragtrace.claim.contradicted")
    assert taken_off(written, attributes=1, events=1) == original


def test_what_the_application_wrote_is_not_overwritten() -> None:
    span = (
        parsed(add_to_spans(encode(rag_trace(0)), {ROOT: ADDITION})).resource_spans[0].scope_spans[0].spans[0]
    )
    kinds = [each.value.string_value for each in span.attributes if each.key == "ragtrace.kind"]
    assert kinds == ["rag"]


def test_every_copy_of_a_span_gets_its_addition() -> None:
    payload = encode(rag_trace(0)) * 2
    request = parsed(add_to_spans(payload, {ROOT: ADDITION}))
    assert [len(each.scope_spans[0].spans[0].events) for each in request.resource_spans] == [1, 1]


@pytest.mark.slow
@given(span=spans())
def test_spans_that_get_nothing_keep_their_bytes(span: Any) -> None:
    payload = encode([span])
    assert add_to_spans(payload, {"0123456789abcdef": ADDITION}) == payload


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_request_is_parted_without_loss(wanted: int) -> None:
    request = parsed(with_unknown_fields(encode([*rag_trace(0), *rag_trace(1)])))
    chosen = f"{wanted + 1:032x}"
    (part,) = split_by_trace(request, wanted=lambda trace_id, _: trace_id == chosen).slices
    drop_spans(request, lambda span: span.trace_id.hex() == chosen)
    assert part.payload + UNKNOWN == with_unknown_fields(encode(rag_trace(wanted)))
    assert request.SerializeToString() == with_unknown_fields(encode(rag_trace(1 - wanted)))


def test_a_request_whose_spans_are_all_taken_out_is_empty() -> None:
    request = parsed(encode(rag_trace(0)))
    drop_spans(request, lambda _: True)
    assert request.SerializeToString() == b""
