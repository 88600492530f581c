"""User feedback on answers, as an index keeps it: up or down, by the span that it is on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.traces.trace import Span

_MIDDLE: Final = 0.5


class GivenFeedback(NamedTuple):
    """One span of feedback."""

    span_id: str
    """The span that it is on; empty if it names only the trace."""
    thumbs: str
    """``up`` or ``down``."""


def feedback_in(spans: Iterable[Span]) -> Iterator[GivenFeedback]:
    """Yield the feedback among spans of a trace, the oldest first: the last one on an answer counts.

    Feedback with a score alone is up above 0.5 and down below it; a comment alone is neither.
    """
    given = [span for span in spans if semconv.FEEDBACK_NAME in span.attributes]
    for span in sorted(given, key=lambda span: (span.end_ns, span.span_id)):
        thumbs = _thumbs(span)
        if thumbs:
            yield GivenFeedback(_about(span), thumbs)


def _about(span: Span) -> str:
    named = span.attributes.get(semconv.TARGET_SPAN_ID)
    return named if isinstance(named, str) else span.parent_span_id or ""


def _thumbs(span: Span) -> str:
    label, score = span.attributes.get(semconv.FEEDBACK_LABEL), span.attributes.get(semconv.FEEDBACK_SCORE)
    if label in ("up", "down"):
        return str(label)
    if not isinstance(score, (int, float)) or score == _MIDDLE:
        return ""
    return "up" if score > _MIDDLE else "down"
