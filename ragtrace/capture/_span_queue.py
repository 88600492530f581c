"""The spans that wait for their endpoint: bounded in number and in bytes, the oldest dropped first.

The SDK bounds its queue in spans alone; with a context of 64 KiB each, 16,384 of them are a gigabyte.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

_SPAN_BYTES = 3_000
"""A span without its attributes: objects, contexts, dictionaries. Measured with the SDK 1.45."""
_ITEM_BYTES = 100
"""A key in a dictionary, and its value besides what the value itself says of its size."""


class WaitingSpan:
    """A span's place in the queue; empty once the span was dropped, or taken to be sent.

    The SDK's processor queues these in place of spans: it looks at their ``context`` alone.
    """

    __slots__ = ("context", "size", "span")

    def __init__(self, span: ReadableSpan, context: SpanContext) -> None:
        self.span: ReadableSpan | None = span
        self.context = context
        self.size = _bytes_in_memory(span)


class SpanQueue:
    """Keeps account of what waits and of what is being sent."""

    def __init__(self, *, most_spans: int, most_bytes: int) -> None:
        self.most_spans = most_spans
        self.most_bytes = most_bytes
        self.begin()

    def begin(self) -> None:
        """Begin anew, with nothing in it: also in a forked child, where the lock may be held by nobody."""
        # Two threads that end spans race to count them. One thread takes the lock twice where a generator is
        # collected meanwhile whose span is still open.
        self.lock = threading.RLock()
        self._waiting: deque[WaitingSpan] = deque()
        self.ended = self.dropped = self.held_bytes = 0

    def add(self, span: ReadableSpan, context: SpanContext) -> WaitingSpan:
        """Let a span wait, and drop the oldest ones until all fit. It may be dropped itself, if it is larger.

        To be called under the lock.
        """
        added = WaitingSpan(span, context)
        self.ended += 1
        self._waiting.append(added)
        self.held_bytes += added.size
        while self._waiting and (len(self._waiting) > self.most_spans or self.held_bytes > self.most_bytes):
            self._drop(self._waiting.popleft())
        return added

    def portions(
        self, places: Iterable[WaitingSpan], *, most_bytes: int, size_of: Callable[[ReadableSpan], int]
    ) -> Iterator[Sequence[WaitingSpan]]:
        """Take spans out to be sent, as many as fit into one request: the others can be dropped yet.

        Whoever takes a portion gives it back by `sent` before the next one.
        """
        portion: list[WaitingSpan] = []
        size = 0
        for place in places:
            span = place.span
            own = 0 if span is None else size_of(span)
            if portion and size + own > most_bytes:
                yield portion
                portion, size = [], 0
            if self._take(place):
                portion.append(place)
                size += own
        if portion:
            yield portion

    def sent(self, portion: Iterable[WaitingSpan]) -> None:
        """Forget spans that were taken, whatever became of them."""
        with self.lock:
            for place in portion:
                place.span = None
                self.held_bytes -= place.size

    def _take(self, place: WaitingSpan) -> bool:
        """Take a span out, and say whether it was there yet. Places come as they were added."""
        with self.lock:
            is_next = bool(self._waiting) and self._waiting[0] is place
            if is_next:
                self._waiting.popleft()
            return is_next

    def _drop(self, place: WaitingSpan) -> None:
        place.span = None
        self.held_bytes -= place.size
        self.dropped += 1


def _bytes_in_memory(span: ReadableSpan) -> int:
    size = _SPAN_BYTES + _bytes_of_attributes(span.attributes)
    for event in span.events:
        size += _SPAN_BYTES // 4 + _bytes_of_attributes(event.attributes)
    for link in span.links:
        size += _SPAN_BYTES // 4 + _bytes_of_attributes(link.attributes)
    return size


def _bytes_of_attributes(attributes: Mapping[str, object] | None) -> int:
    """Say what attributes take, in microseconds: the thread that asks is the application's."""
    if not attributes:
        return 0
    # The SDK's mapping takes a call for each value, and gives all of them as a dictionary in one.
    values = getattr(attributes, "copy", lambda: attributes)().values()
    # ``getsizeof`` looks at nothing: it costs the same for a megabyte as for a word
    size = _ITEM_BYTES * len(values) + sum(map(sys.getsizeof, values))
    return size + sum(_bytes_inside(value) for value in values if type(value) not in _FLAT)


_FLAT = frozenset({str, bytes, int, float, bool})


def _bytes_inside(value: object) -> int:
    """Say what is in a sequence or a mapping, besides itself."""
    if isinstance(value, Mapping):
        return sum(_bytes_inside(inner) + sys.getsizeof(inner) for pair in value.items() for inner in pair)
    if isinstance(value, (list, tuple)):
        return sum(_bytes_inside(inner) + sys.getsizeof(inner) for inner in value)
    return 0
