"""The queue of spans to export, bounded in number and in bytes; it drops the oldest first.

The SDK bounds its queue by number only: 16,384 spans with a context of 64 KiB each take a gigabyte.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

_SPAN_BYTES = 3_000
"""Bytes of a span without its attributes: objects, contexts, dictionaries. Measured with the SDK 1.45."""
SENT_BYTES = 256
"""Bytes of a span without its attributes in a request."""
_ITEM_BYTES = 100
"""Overhead of a dictionary entry, on top of the value's own size."""


class WaitingSpan:
    """A span's slot in the queue; empty once the span is dropped or taken for sending.

    The SDK's processor queues slots in place of spans, because it reads only their ``context``.
    """

    __slots__ = ("context", "size", "span")

    def __init__(self, span: ReadableSpan, context: SpanContext) -> None:
        self.span: ReadableSpan | None = span
        self.context = context
        self.size = _bytes_in_memory(span)

    @property
    def most_bytes_sent(self) -> int:
        """A bound of what it takes in a request: one byte in memory is at most two of UTF-8."""
        return 2 * (self.size - _SPAN_BYTES) + SENT_BYTES


class SpanQueue:
    """Tracks the spans that wait and the spans in flight."""

    def __init__(self, *, most_spans: int, most_bytes: int) -> None:
        self.most_spans = most_spans
        self.most_bytes = most_bytes
        self.begin()

    def begin(self) -> None:
        """Reset to an empty queue, with a new lock: in a forked child its holder may not exist."""
        # The lock guards the counts against threads that end spans concurrently. It is reentrant: garbage
        # collection of a generator can end a span while the same thread holds the lock.
        self.lock = threading.RLock()
        self._waiting: deque[WaitingSpan] = deque()
        self.ended = self.dropped = self.held_bytes = 0

    def add(self, span: ReadableSpan, context: SpanContext) -> WaitingSpan:
        """Queue a span and drop the oldest ones until all fit. A span above the limit is itself dropped.

        The caller holds the lock.
        """
        added = WaitingSpan(span, context)
        self.ended += 1
        self._waiting.append(added)
        self.held_bytes += added.size
        while self._waiting and (len(self._waiting) > self.most_spans or self.held_bytes > self.most_bytes):
            self._drop(self._waiting.popleft())
        return added

    def portions(
        self, places: Sequence[WaitingSpan], *, most_bytes: int, size_of: Callable[[ReadableSpan], int]
    ) -> Iterator[Sequence[WaitingSpan]]:
        """Yield spans to send, one request's worth at a time: the rest can still be dropped.

        The caller calls `sent` for each portion before it takes the next one.
        """
        portion: list[WaitingSpan] = []
        size = 0
        all_fit = sum(place.most_bytes_sent for place in places) <= most_bytes
        for place in places:
            span = place.span
            own = 0 if span is None or all_fit else size_of(span)
            if portion and size + own > most_bytes:
                yield portion
                portion, size = [], 0
            if self._take(place):
                portion.append(place)
                size += own
        if portion:
            yield portion

    def sent(self, portion: Iterable[WaitingSpan]) -> None:
        """Release spans that were taken, whether or not they were sent."""
        with self.lock:
            for place in portion:
                place.span = None
                self.held_bytes -= place.size

    def _take(self, place: WaitingSpan) -> bool:
        """Take a span and return whether it was still there. Slots come in the order they were added."""
        with self.lock:
            is_next = bool(self._waiting) and self._waiting[0] is place
            if is_next:
                self._waiting.popleft()
            return is_next

    def _drop(self, place: WaitingSpan) -> None:
        place.span = None
        self.held_bytes -= place.size
        self.dropped += 1


def copied(attributes: Mapping[str, object]) -> Mapping[str, object]:
    """Copy the SDK's mapping to a dictionary, which is one call; reading it takes a call per value."""
    copy = getattr(attributes, "copy", None)
    return attributes if copy is None else copy()


def _bytes_in_memory(span: ReadableSpan) -> int:
    size = _SPAN_BYTES + _bytes_of_attributes(span.attributes)
    for event in span.events:
        size += _SPAN_BYTES // 4 + _bytes_of_attributes(event.attributes)
    for link in span.links:
        size += _SPAN_BYTES // 4 + _bytes_of_attributes(link.attributes)
    return size


def _bytes_of_attributes(attributes: Mapping[str, object] | None) -> int:
    """Return the bytes that attributes take. It must be fast, because it runs in the application's thread."""
    if not attributes:
        return 0
    values = copied(attributes).values()
    return _ITEM_BYTES * len(values) + _bytes_of(values)


_FLAT = frozenset({str, bytes, int, float, bool})


def _bytes_of(values: Collection[object]) -> int:
    """Return the bytes of values with all that is in them."""
    # ``getsizeof`` does not read the value: it costs the same for a megabyte as for a word
    size = sum(map(sys.getsizeof, values))
    if _FLAT.issuperset(map(type, values)):
        return size
    for value in values:
        if isinstance(value, (list, tuple)):
            size += _bytes_of(value)
        elif isinstance(value, Mapping):
            size += _bytes_of(value.keys()) + _bytes_of(value.values())
    return size
