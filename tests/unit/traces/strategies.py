"""Hypothesis strategies for spans."""

from __future__ import annotations

from hypothesis import strategies as st

from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, StatusCode

# a small alphabet of what breaks codecs: drawing from all of Unicode costs seconds
text = st.text(st.sampled_from('aZ0.é漢😀\0\n"\\\u2028{['), max_size=12)
trace_ids = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
span_ids = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")
scalars = (
    st.none()
    | text
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
attributes = st.dictionaries(text, values, max_size=4)
times = st.integers(0, 2**63)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start, end = sorted([draw(times), draw(times)])
    return Span(
        trace_id=draw(trace_ids),
        span_id=draw(span_ids),
        parent_span_id=draw(st.none() | span_ids),
        name=draw(text),
        kind=draw(st.sampled_from(SpanKind)),
        start_ns=start,
        end_ns=end,
        attributes=draw(attributes),
        events=tuple(
            draw(st.lists(st.builds(SpanEvent, name=text, time_ns=times, attributes=attributes), max_size=2))
        ),
        links=tuple(
            draw(
                st.lists(
                    st.builds(SpanLink, trace_id=trace_ids, span_id=span_ids, attributes=attributes),
                    max_size=2,
                )
            )
        ),
        status_code=draw(st.sampled_from(StatusCode)),
        status_message=draw(text),
        dropped_attributes_count=draw(st.integers(0, 2**32 - 1)),
        flags=draw(st.integers(0, 2**32 - 1)),
        trace_state=draw(text),
        resource=draw(st.builds(Resource, attributes=attributes, schema_url=text)),
        scope=draw(st.builds(Scope, name=text, version=text, schema_url=text)),
    )
