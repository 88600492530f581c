"""User feedback among the spans of a trace."""

from __future__ import annotations

from ragtrace import semconv
from ragtrace.answers.summary import GivenFeedback, feedback_in
from ragtrace.model import AttributeValue
from ragtrace.traces.trace import Span
from tests.unit.traces.builders import START_NS, TRACE_ID, span_id


def said(number: int = 1, *, parent: str | None = None, **told: AttributeValue) -> Span:
    attributes = {
        semconv.FEEDBACK_NAME: "user_feedback",
        **{semconv.FEEDBACK_PREFIX + k: v for k, v in told.items()},
    }
    end_ns = START_NS + number
    return Span(
        trace_id=TRACE_ID,
        span_id=span_id(number),
        parent_span_id=parent,
        name="feedback",
        start_ns=START_NS,
        end_ns=end_ns,
        attributes=attributes,
    )


TOLD: list[tuple[dict[str, AttributeValue], list[str]]] = [
    ({"label": "up"}, ["up"]),
    ({"label": "down", "score": 1.0}, ["down"]),
    ({"score": 1.0}, ["up"]),
    ({"score": 0.2}, ["down"]),
    *(({name: value}, []) for name, value in (("comment", "so-so"), ("score", 0.5), ("label", "sideways"))),
]


def test_feedback_is_up_or_down_or_none_and_the_last_comes_last() -> None:
    for told, thumbs in TOLD:
        found = [given.thumbs for given in feedback_in([said(parent=span_id(9), **told)])]
        assert found == thumbs, told
    spans = [said(2, label="down"), said(1, label="up")]
    assert list(feedback_in(spans)) == [GivenFeedback("", "up"), GivenFeedback("", "down")]
