"""Export ended spans to the OTLP endpoint: bounded, counted, and silent toward the application.

Only ``instrument()`` imports this module, because it loads the SDK.
"""

from __future__ import annotations

import logging
import multiprocessing.util
import os
import sys
import threading
import time
import weakref
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import SpanContext

from ragtrace import semconv
from ragtrace.capture._guard import hint, log
from ragtrace.capture.instrumentation import Settings, cooperative
from ragtrace.http import open_span_exporter


class ReusedResource(Resource):
    """A resource that is hashed once. The SDK's writes all attributes as JSON each time, and its exporters
    group spans by resource: a fortieth of the samples in a profile of recording and sending a call.
    """

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.attributes, resource.schema_url)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def new_resource(given: Mapping[str, str]) -> Resource:
    """Return the resource of these attributes, of ``OTEL_RESOURCE_ATTRIBUTES`` and of the detectors."""
    return ReusedResource(Resource.create(given))


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


MANY: Final = 1_000
"""Report after this many spans, because a server may run for weeks before it ends."""


class RagCallWatch:
    """Counts ended spans until one is part of a RAG call. No lock: a race only skews the count."""

    def __init__(self) -> None:
        self._begin()
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (again := begin()) and again())

    def _begin(self) -> None:
        self._seen = 0
        self._found = False

    def see(self, span: ReadableSpan) -> None:
        """Check an ended span."""
        if self._found:
            return
        self._found = _is_part_of_a_call(span)
        self._seen += 1
        if self._seen == MANY:
            self.report()

    @property
    def seen(self) -> int:
        """Number of ended spans, up to the first that is part of a RAG call."""
        return self._seen

    def report(self) -> None:
        """Print a hint if spans ended and none is part of a RAG call."""
        if self._found or not self._seen:
            return
        spans = "a span" if self._seen == 1 else f"{self._seen} spans"
        hint(
            "no RAG call",
            f"{spans} ended and none is part of a RAG call: there is nothing to judge. Mark the call with "
            "@ragtrace.rag and the search with @ragtrace.retrieval; "
            "`ragtrace doctor --app 'python app.py'` shows what is captured",
        )


def _is_part_of_a_call(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return any(key.startswith(semconv.LLM_PREFIXES) for key in span.attributes or ()) or (
        scope is not None and scope.name.startswith(semconv.LLM_SCOPES)
    )


QUEUE_SPANS = 16_384
"""The SDK's default of 2,048 is less than one second at 1,000 RAG calls per second."""
BATCH_SPANS = 512
SCHEDULE_DELAY_MS = 1_000.0
REQUEST_BYTES = 3_000_000
"""The maximum size of a request: gRPC receivers refuse 4 MiB, and 512 spans with text often exceed that."""
STALL_TIMEOUT_S = 2.0
"""How long a closing pipeline waits for progress of its endpoint."""
_POLL_S = 0.005
_UNREACHABLE = "unreachable"


class Pipeline:
    """A batch processor with its exporters, which closes within a bounded time."""

    def __init__(self, settings: Settings) -> None:
        self._queue = SpanQueue(most_spans=_most_spans(os.environ), most_bytes=settings.max_queue_bytes)
        self._exporter = _CountedExporter(
            # asked again in a forked child: a server's worker replaces its sockets there
            lambda: [_exporter(name, cooperative(settings, os.environ)) for name in settings.exporters],
            _unreachable(cooperative(settings, os.environ)),
            self._queue,
        )
        self._processor = _batch_processor(self._exporter, os.environ, self._queue.most_spans)
        self._begin_counting()
        after_fork = weakref.WeakMethod(self._begin_counting)
        os.register_at_fork(after_in_child=lambda: (begin := after_fork()) and begin())
        multiprocessing.util.register_after_fork(self, _close_at_exit)

    def _begin_counting(self) -> None:
        # A forked child starts from zero, because the SDK empties its queue there.
        self._queue.begin()
        self._exporter.begin()

    def take(self, span: ReadableSpan) -> None:
        """Queue an ended span."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        with self._queue.lock:
            dropped = self._queue.dropped
            place = self._queue.add(span, context)
            self._processor.on_end(place)  # type: ignore[arg-type]  # it reads only the context
        if dropped != self._queue.dropped:
            hint("queue full", _full(self._queue))

    def counts(self) -> dict[str, int]:
        """Return the counts of the spans that ended while this was connected, by their names in
        [`CaptureStatistics`][ragtrace.capture.instrumentation.CaptureStatistics].
        """
        with self._queue.lock:
            ended, dropped = self._queue.ended, self._queue.dropped
        exported, failed = self._exporter.exported, self._exporter.failed
        return {
            "spans_ended": ended,
            "spans_exported": exported,
            "spans_failed": failed,
            "spans_dropped": dropped,
            "spans_waiting": max(0, ended - exported - failed - dropped),
        }

    def flush(self, timeout_s: float) -> bool:
        """Export the queue; return whether the endpoint accepted all spans in time."""
        failed = self._exporter.failed
        done = _InThread(self._processor.force_flush)
        done.join(timeout_s)
        return not done.is_alive() and self._exporter.failed == failed

    def close(self, timeout_s: float) -> bool:
        """Export the queue and stop; give up if the endpoint makes no progress.

        Returns whether the endpoint accepted all spans.
        """
        failed = self._exporter.failed
        deadline = time.monotonic() + timeout_s
        closing = _InThread(self._processor.shutdown)
        while closing.is_alive():
            exported = self._exporter.exported
            closing.join(max(0.0, min(STALL_TIMEOUT_S, deadline - time.monotonic())))
            if closing.is_alive() and (self._exporter.exported == exported or time.monotonic() >= deadline):
                self._exporter.shutdown()
                closing.join(STALL_TIMEOUT_S)
                break
        self._report_loss()
        return not closing.is_alive() and self._exporter.failed == failed

    def _report_loss(self) -> None:
        ended, exported, failed, dropped, waiting = self.counts().values()
        if ended and not exported:
            self._exporter.say_unreachable()
        if ended != exported:
            log.warning(
                "ragtrace: of %d spans %d were sent; %d were refused or given up, %d found the queue full",
                *(ended, exported, failed + waiting, dropped),
            )


class ExportSwitch(SpanProcessor):
    """Forwards spans while it is connected. It stays in its provider: processors cannot be removed."""

    def __init__(self) -> None:
        self.pipeline: Pipeline | None = None
        self.watch: RagCallWatch | None = None

    def on_end(self, span: ReadableSpan) -> None:
        """Forward an ended span."""
        watch, pipeline = self.watch, self.pipeline
        if watch is not None:
            watch.see(span)
        if pipeline is not None:
            pipeline.take(span)

    def shutdown(self) -> None:
        """Close the pipeline with the application's provider."""
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None:
            pipeline.close(30.0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export the queue."""
        pipeline = self.pipeline
        return pipeline is None or pipeline.flush(timeout_millis / 1_000)


def _close_at_exit(pipeline: Pipeline) -> None:
    # A forked `multiprocessing` child exits without `atexit`.
    multiprocessing.util.Finalize(None, pipeline.close, (30.0,), exitpriority=0)


def span_limits(env: Mapping[str, str]) -> SpanLimits:
    """Lift every limit that the environment does not set: beyond 128 attributes the SDK drops the *oldest*.

    ``SpanLimits.UNSET`` is "no limit"; ``None`` would be "the default of 128".
    """

    def limit(*variables: str) -> int | None:
        return None if any(variable in env for variable in variables) else SpanLimits.UNSET

    total = "OTEL_ATTRIBUTE_COUNT_LIMIT"
    return SpanLimits(
        max_attributes=limit(total),
        max_span_attributes=limit(total, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
        max_event_attributes=limit(total, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT"),
        max_link_attributes=limit(total, "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"),
        max_events=limit("OTEL_SPAN_EVENT_COUNT_LIMIT"),
        max_links=limit("OTEL_SPAN_LINK_COUNT_LIMIT"),
    )


class _CountedExporter(SpanExporter):
    """Counts accepted and failed spans, splits requests below the receivers' limit, and logs little."""

    def __init__(
        self, make: Callable[[], Sequence[SpanExporter]], unreachable: str, queue: SpanQueue
    ) -> None:
        for name in _NOISY:
            logging.getLogger(name).addFilter(_hush)
        self._make = make
        self._unreachable = unreachable
        self._queue = queue
        self._inner: Sequence[SpanExporter] | None = make()
        self._pid = os.getpid()
        self._closed = False

    def begin(self) -> None:
        """Count from zero; a forked child leaves the parent's connections alone."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._inner = None
        self._failing = False
        self.exported = self.failed = 0

    def say_unreachable(self) -> bool:
        """Print the hint once, because the application may have no log; return whether it was printed now."""
        return hint(_UNREACHABLE, self._unreachable)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        places: Sequence[WaitingSpan] = spans  # type: ignore[assignment]  # `Pipeline.take` queues slots
        portions = self._queue.portions(places, most_bytes=REQUEST_BYTES, size_of=_approximate_bytes)
        results = [self._export_places(portion) for portion in portions]
        return SpanExportResult.SUCCESS if all(results) else SpanExportResult.FAILURE

    def _export_places(self, portion: Sequence[WaitingSpan]) -> bool:
        try:
            return self._export_portion([place.span for place in portion if place.span is not None])
        finally:
            self._queue.sent(portion)

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            _quietly(self._shutdown_inner)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def _export_inner(self, spans: Sequence[ReadableSpan]) -> bool:
        if self._inner is None:
            self._inner = self._make()
        results = [exporter.export(spans) for exporter in self._inner]
        return all(result is SpanExportResult.SUCCESS for result in results)

    def _shutdown_inner(self) -> None:
        for exporter in self._inner or ():
            exporter.shutdown()

    def _export_portion(self, spans: Sequence[ReadableSpan]) -> bool:
        taken = not self._closed and _quietly(lambda: self._export_inner(spans))
        if taken:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        self._report(failing=not taken)
        return taken

    def _report(self, *, failing: bool) -> None:
        if self._closed:
            return  # closed: the caller of `close` has the result, so a late thread stays silent
        if failing and not self._failing and not self.say_unreachable():
            log.warning("ragtrace: spans could not be sent: is the OTLP endpoint up and does it take them?")
        elif self._failing and not failing:
            log.info("ragtrace: spans are being sent again")
        self._failing = failing


def _unreachable(settings: Settings) -> str:
    by = "gRPC" if settings.protocol == "grpc" else "HTTP"
    line = f"no span could be sent to {settings.target} by {by}: is a collector there, and does it take them?"
    if settings.target_by != "default":
        return line
    return (
        f"{line} No endpoint is set, and this is the default: set yours with "
        "`ragtrace.instrument(endpoint=…)` or OTEL_EXPORTER_OTLP_ENDPOINT"
    )


def _exporter(name: str, settings: Settings) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    return open_span_exporter(
        protocol=settings.protocol,
        endpoint=settings.endpoint,
        headers=dict(settings.headers),
        on_redirect=partial(_say_redirected, settings.target),
    )


def _say_redirected(target: str, status: int, host: str) -> None:
    """Print a hint about the redirect, instead of the one about an unreachable endpoint."""
    hint(
        _UNREACHABLE,
        f"no span could be sent to {target}: it answered {status}, a redirect to {host}, which is not "
        "followed: set the collector's own address",
    )


def _most_spans(env: Mapping[str, str]) -> int:
    try:
        return int(env.get("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS))
    except ValueError:
        log.error("ragtrace: OTEL_BSP_MAX_QUEUE_SIZE is not a number: the queue holds %d spans", QUEUE_SPANS)
        return QUEUE_SPANS


def _batch_processor(exporter: SpanExporter, env: Mapping[str, str], most_spans: int) -> BatchSpanProcessor:
    # ``None`` leaves a size to its OTEL_BSP_* variable. The SDK's queue has the same limit as ours: if it is
    # full, we dropped a span, and the SDK drops the empty slot. The SDK rejects invalid sizes itself.
    return BatchSpanProcessor(
        exporter,
        max_queue_size=most_spans + 1 if most_spans > 0 else most_spans,
        max_export_batch_size=None
        if "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" in env
        else min(BATCH_SPANS, most_spans),
        schedule_delay_millis=None if "OTEL_BSP_SCHEDULE_DELAY" in env else SCHEDULE_DELAY_MS,
    )


def _full(queue: SpanQueue) -> str:
    return (
        f"spans end faster than their endpoint takes them: {queue.most_bytes >> 20} MiB or"
        f" {queue.most_spans:,} spans wait, and the oldest are dropped; `ragtrace.statistics()` counts them,"
        " and `ragtrace.instrument(max_queue_bytes=…)` or RAGTRACE_MAX_QUEUE_BYTES changes the limit"
    )


def _approximate_bytes(span: ReadableSpan) -> int:
    attribute_sets = (
        span.attributes,
        *(event.attributes for event in span.events),
        *(link.attributes for link in span.links),
    )
    return SENT_BYTES * len(attribute_sets) + sum(
        len(key) + _sent_bytes_of(value)
        for attributes in attribute_sets
        if attributes
        for key, value in copied(attributes).items()
    )


def _sent_bytes_of(value: object) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(_sent_bytes_of(inner) + 4 for inner in value)
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _sent_bytes_of(inner) for key, inner in value.items())
    return 10


class _InThread:
    """Work in a thread as there were at the import of this module, which waits without a lock of its kind.

    If gevent or eventlet replaced threads since, gRPC would stop all greenlets in one of theirs.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work, self._is_over = work, False
        try:
            start_new_thread(self._run, ())
        except RuntimeError:  # the interpreter is shutting down
            self._run()

    def is_alive(self) -> bool:
        return not self._is_over

    def join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._is_over and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self._is_over = True


class _Hush(logging.Filter):
    """Drops the exporters' log lines while they work for us; the application's own exporters still log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_working, "for_us", False)


_working = threading.local()
_hush = _Hush()
_NOISY = (
    "opentelemetry.exporter.otlp.proto.common._internal",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)


def _quietly(work: Callable[[], object]) -> bool:
    """Run the work with the exporters' log lines dropped; an exception counts as ``False``."""
    _working.for_us = True
    try:
        return bool(work())
    except Exception as exc:  # noqa: BLE001 - an exporter may raise anything: the batch counts as failed
        log.debug("ragtrace: export ended with %s", type(exc).__name__)
        return False
    finally:
        _working.for_us = False
