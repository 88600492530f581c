"""Carriers without what differs from run to run: how long each metric and each judge step took."""

from __future__ import annotations

import re
from dataclasses import replace

from ragtrace import semconv
from ragtrace.model import AttributeValue
from ragtrace.traces.trace import Span, SpanEvent


def without_durations(span: Span) -> Span:
    return replace(span, events=tuple(map(_event, span.events)))


def _event(event: SpanEvent) -> SpanEvent:
    kept = {
        key: _timeless(value) for key, value in event.attributes.items() if key != semconv.EVAL_DURATION_MS
    }
    return replace(event, attributes=kept)


def _timeless(value: AttributeValue) -> AttributeValue:
    if not isinstance(value, tuple):
        return value
    return tuple(
        re.sub(r'"duration_ms":\d+', '"duration_ms":0', each) if isinstance(each, str) else each
        for each in value
    )
