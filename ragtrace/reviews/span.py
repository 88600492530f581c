"""A review as a span of the answer's trace, like user feedback: it is for people who look at the trace."""

from __future__ import annotations

import hashlib
from typing import Final

from ragtrace import __version__, semconv
from ragtrace.model import AttributeValue, Target
from ragtrace.reviews.review import Review
from ragtrace.traces.text import cut_utf8
from ragtrace.traces.trace import Resource, Scope, Span, SpanKind, SpanLink

_LENGTH_NS: Final = 1_000_000


def review_span(review: Review, target: Target, *, content: bool = True) -> Span:
    """Build the span of a review: a child of the judged span, linked to it, at the time of the review.

    Its id is derived from the review, so that a re-send is the same span. ``content`` is the policy of
    carriers: without it the span has neither the claim nor the note.
    """
    start_ns = max(review.time_ns, target.start_ns)
    return Span(
        trace_id=target.trace_id,
        span_id=_span_id(review),
        parent_span_id=target.span_id,
        name=f"{semconv.REVIEW_SPAN} {review.label.value}",
        kind=SpanKind.INTERNAL,
        start_ns=start_ns,
        end_ns=start_ns + _LENGTH_NS,
        attributes=_attributes(review, target, content=content),
        links=(
            SpanLink(trace_id=target.trace_id, span_id=target.span_id, attributes=semconv.LINK_TO_PARENT),
        ),
        flags=target.trace_flags,
        trace_state=target.trace_state,
        resource=Resource(attributes=target.resource, schema_url=target.resource_schema_url),
        scope=Scope(name=semconv.SCOPE_EVALUATION, version=__version__),
    )


def _span_id(review: Review) -> str:
    key = "|".join(
        (*review.key, review.carrier_span_id, review.claim, review.reviewer, str(review.time_ns), "review")
    )
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8].hex()


def _attributes(review: Review, target: Target, *, content: bool) -> dict[str, AttributeValue]:
    note = review.note if content else ""
    found: dict[str, AttributeValue | None] = {
        semconv.OI_KIND: semconv.OI_EVALUATOR,
        semconv.REVIEW_LABEL: review.label.value,
        semconv.REVIEW_VERDICT: review.verdict.value,
        semconv.REVIEW_OVERRULES: review.overrules,
        semconv.REVIEW_CLAIM: _cut(review.claim) if content else None,
        semconv.REVIEW_NOTE: _cut(note) or None,
        semconv.REVIEW_OFFSET_START: review.start,
        semconv.REVIEW_OFFSET_END: review.end,
        semconv.REVIEW_REVIEWER: _cut(review.reviewer) or None,
        semconv.REVIEW_CARRIER: review.carrier_span_id or None,
        semconv.REVIEW_PICKED: review.picked.value,
        semconv.TARGET_TRACE_ID: target.trace_id,
        semconv.TARGET_SPAN_ID: target.span_id,
        **_annotation(review, note),
    }
    return {key: value for key, value in found.items() if value is not None}


def _annotation(review: Review, note: str) -> dict[str, AttributeValue | None]:
    """Return the review as an OpenInference annotation (``spec/annotations.md``)."""
    prefix = f"{semconv.OI_ANNOTATIONS}.0.annotation."
    return {
        f"{prefix}name": "claim_verdict",
        f"{prefix}annotator_kind": semconv.OI_HUMAN,
        f"{prefix}label": review.label.value,
        f"{prefix}explanation": _cut(note) or None,
    }


def _cut(text: str) -> str:
    return cut_utf8(text, semconv.SAFE_STRING_BYTES)
