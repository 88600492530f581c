"""User feedback among the spans of a trace."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("told", "thumbs"),
    [
        ({"label": "up"}, "up"),
        ({"label": "down", "score": 1.0}, "down"),
        ({"score": 1.0}, "up"),
        ({"score": 0.2}, "down"),
    ],
    ids=["up", "a label beside a score", "high score", "low score"],
)
def test_feedback_is_up_or_down(told: dict[str, AttributeValue], thumbs: str) -> None:
    assert list(feedback_in([said(parent=span_id(9), **told)])) == [GivenFeedback(span_id(9), thumbs)]


@pytest.mark.parametrize(
    "told", [{"comment": "so-so"}, {"score": 0.5}, {"score": "high"}, {"label": "sideways"}], ids=str
)
def test_feedback_that_is_neither_is_none(told: dict[str, AttributeValue]) -> None:
    assert list(feedback_in([said(**told)])) == []


def test_last_feedback_comes_last_and_may_name_only_the_trace() -> None:
    spans = [said(2, label="down"), said(1, label="up")]
    assert list(feedback_in(spans)) == [GivenFeedback("", "up"), GivenFeedback("", "down")]
