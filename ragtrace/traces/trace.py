"""Span values, which the OTLP codecs decode to and encode from; their ancestors, and text safe to store."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from ragtrace import semconv
from ragtrace.model import AttributeValue


class SpanKind(IntEnum):
    """OTLP ``Span.SpanKind``."""

    UNSPECIFIED = 0
    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


class StatusCode(IntEnum):
    """OTLP ``Status.StatusCode``."""

    UNSET = 0
    OK = 1
    ERROR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """The emitter of the spans."""

    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    schema_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The instrumentation library that created a span."""

    name: str = ""
    version: str = ""
    schema_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """An event at one moment of a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLink:
    """A pointer to another span."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One OTLP span with its resource and scope. Ids are lower-case hex."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: SpanKind = SpanKind.INTERNAL
    start_ns: int
    end_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    status_code: StatusCode = StatusCode.UNSET
    status_message: str = ""
    dropped_attributes_count: int = 0
    flags: int = 0
    trace_state: str = ""
    resource: Resource = Resource()
    scope: Scope = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The known spans of one trace id, without duplicates, in order of start and id.

    Build it with [`Trace.of`][ragtrace.traces.trace.Trace.of]: the same spans in any order, split or
    duplication give the same value.
    """

    trace_id: str
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, trace_id: str, spans: Iterable[Span]) -> Trace:
        """Assemble a trace. Of spans with the same id, it keeps the one that ended last, then the largest.

        Log records of a span become its events, in order of time; those of an unknown span are left out.
        """
        latest: dict[str, Span] = {}
        seniorities: dict[str, tuple[int, int, str]] = {}
        """Seniorities of duplicated spans: computed once each, because the cost grows with the span."""
        said: dict[str, dict[str, SpanEvent]] = {}
        """Log records by span, each once, whatever the copies."""
        for span in spans:
            if span.name == semconv.LOG_RECORDS_SPAN:
                of_span = said.setdefault(span.span_id, {})
                of_span.update((repr(event), event) for event in span.events)
                continue
            known = latest.setdefault(span.span_id, span)
            if known is span:
                continue
            newer, older = _seniority(span), seniorities.get(span.span_id) or _seniority(known)
            seniorities[span.span_id] = max(newer, older)
            if newer > older:
                latest[span.span_id] = span
        for span_id in said.keys() & latest.keys():
            span, records = latest[span_id], said[span_id]
            events = sorted(records, key=lambda record: (records[record].time_ns, record))
            latest[span_id] = replace(span, events=(*span.events, *(records[each] for each in events)))
        ordered = sorted(latest.values(), key=lambda span: (span.start_ns, span.span_id))
        return cls(trace_id=trace_id, spans=tuple(ordered))

    def find(self, span_id: str) -> Span | None:
        """Return the span with this id, or ``None``."""
        return next((span for span in self.spans if span.span_id == span_id), None)

    def children(self) -> Mapping[str | None, tuple[Span, ...]]:
        """Map each parent span id to its children; ``None`` to the spans with an unknown parent."""
        seen = {span.span_id for span in self.spans}
        table: dict[str | None, list[Span]] = {}
        for span in self.spans:
            parent = span.parent_span_id if span.parent_span_id in seen else None
            table.setdefault(parent, []).append(span)
        return {parent: tuple(spans) for parent, spans in table.items()}


def _seniority(span: Span) -> tuple[int, int, str]:
    # repr breaks ties between different copies, so that the choice does not depend on the arrival order
    return (span.end_ns, len(span.attributes), repr(span))


class Lineage:
    """The parents of spans. A missing parent ends a path, and so does a cycle."""

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        self._parents = parents
        self._tops: dict[str, str] = {}

    def line(self, span_id: str) -> Iterator[str]:
        """Yield the span and its ancestors, the nearest first. For many spans, use the other methods."""
        walked: set[str] = set()
        above: str | None = span_id
        while above is not None and above not in walked:
            walked.add(above)
            yield above
            above = self._parents.get(above)

    def nearest_above(self, of: Iterable[str], ids: Collection[str]) -> Mapping[str, str]:
        """Map each span in ``of`` to its nearest ancestor in ``ids``, if it has one."""
        nearest: dict[str, str | None] = {}
        for span_id in of if ids else ():
            line = []
            above = span_id
            while above not in nearest and (parent := self._parents.get(above)) is not None:
                nearest[above] = None  # each path is walked once, cycles too
                line.append(above)
                above = parent
                if above in ids:
                    break
            found = above if above in ids else nearest.get(above)
            nearest.update(dict.fromkeys(line, found))
        return {
            span_id: above for span_id, above in nearest.items() if above is not None and above != span_id
        }

    def all_above(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of the spans above any of these."""
        above: set[str] = set()
        for span_id in ids:
            parent = self._parents.get(span_id)
            while parent is not None and parent not in above:
                above.add(parent)
                parent = self._parents.get(parent)
        return frozenset(above)

    def top(self, span_id: str) -> str:
        """Return the topmost ancestor, or the span itself; in a cycle, the span with the smallest id."""
        line: dict[str, None] = {}
        above = span_id
        while above not in self._tops and above not in line:
            line[above] = None
            above = self._parents.get(above) or above
        if above in self._tops:
            top = self._tops[above]
        else:
            walked = list(line)
            top = min(walked[walked.index(above) :])
        self._tops.update(dict.fromkeys(line, top))
        return top


_SURROGATE = re.compile("[\ud800-\udfff]")


def scrub_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)


def flat(text: str) -> str:
    """Return the text with one space between its words."""
    return " ".join(text.split())


def cut_utf8(text: str, max_bytes: int, *, mark: str = "…") -> str:
    """Return the longest prefix that fits into ``max_bytes`` of UTF-8 with the mark at its end.

    A text that fits is returned unchanged. No character is split.
    """
    if len(text) * 4 <= max_bytes:
        return text
    encoded = scrub_surrogates(text).encode()
    if len(encoded) <= max_bytes:
        return text
    return encoded[: max_bytes - len(mark.encode())].decode(errors="ignore") + mark
