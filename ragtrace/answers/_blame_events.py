"""The causes on a carrier: its attributes and events back to values."""

from __future__ import annotations

from typing import Final

from ragtrace import semconv
from ragtrace.answers._values import Attributes, integer_of, text_of, texts_of
from ragtrace.model import Blame, BlameClass, Fault
from ragtrace.traces.trace import Span

_KNOWN: Final = {blame.value: blame for blame in BlameClass}


def read_blame(carrier: Span) -> Blame:
    """Read the causes. One of a newer ragtrace is left out."""
    events = (event.attributes for event in carrier.events if event.name == semconv.BLAME_EVENT)
    found = (_fault(told) for told in events)
    return Blame(
        faults=tuple(fault for fault in found if fault),
        missing=texts_of(carrier.attributes, semconv.BLAME_MISSING),
    )


def _fault(told: Attributes) -> Fault | None:
    blame = _KNOWN.get(text_of(told, semconv.BLAME_CLASS) or "")
    if blame is None:
        return None
    return Fault(
        blame=blame,
        why=text_of(told, semconv.BLAME_WHY) or "",
        claim=integer_of(told, semconv.BLAME_CLAIM),
        chunk_ids=texts_of(told, semconv.BLAME_CHUNK_IDS),
        span_id=text_of(told, semconv.BLAME_SPAN_ID) or "",
        quote=text_of(told, semconv.BLAME_QUOTE) or "",
    )
