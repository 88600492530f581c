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
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import SpanContext

from ragtrace import semconv
from ragtrace.capture._guard import hint, log
from ragtrace.capture.instrumentation import Settings, cooperative
from ragtrace.http import open_span_exporter

_SPAN_BYTES = 3_000
"""Bytes of a span without its attributes: objects, contexts, dictionaries. Measured with the SDK 1.45."""
_SENT_BYTES = 256
"""Bytes of a span without its attributes in a request."""
_ITEM_BYTES = 100
"""Overhead of a dictionary entry, on top of the value's own size."""


class WaitingSpan:
    """A span's slot in the queue; empty once the span is dropped or sent.

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
        return 2 * (self.size - _SPAN_BYTES) + _SENT_BYTES


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
    copy = getattr(attributes, "copy", None)  # of the SDK's mapping, whose reading takes a call per value
    values = (attributes if copy is None else copy()).values()
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


class Pipeline(SpanExporter):
    """Exports ended spans: bounded in memory, counted, and closed within a bounded time.

    The SDK's processor batches them, and gives the batches back to `export`.
    """

    def __init__(self, settings: Settings) -> None:
        for name in _NOISY:
            logging.getLogger(name).addFilter(_hush)
        self._settings = settings
        self._most_spans = _most_spans(os.environ)
        self._unreachable = _unreachable(cooperative(settings, os.environ))
        self._exporter = self._opened()
        self._is_open = True
        self._pid = os.getpid()
        self._closed = False
        self._processor = _batch_processor(self, os.environ, self._most_spans)
        self._begin_counting()
        after_fork = weakref.WeakMethod(self._begin_counting)
        os.register_at_fork(after_in_child=lambda: (begin := after_fork()) and begin())
        multiprocessing.util.register_after_fork(self, _close_at_exit)

    def _begin_counting(self) -> None:
        """Count from zero; a forked child, whose SDK empties its queue, leaves the connections alone."""
        # Threads end spans concurrently. The lock is reentrant: garbage collection of a generator can end a
        # span while the same thread holds it. In a forked child its holder may not exist.
        self._lock = threading.RLock()
        self._waiting: deque[WaitingSpan] = deque()
        self._held_bytes = self.ended = self.dropped = self.exported = self.failed = 0
        self._failing = False
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._is_open = False

    def take(self, span: ReadableSpan) -> None:
        """Queue an ended span, and drop the oldest ones until all fit."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        with self._lock:
            dropped = self.dropped
            self.ended += 1
            added = WaitingSpan(span, context)
            self._waiting.append(added)
            self._held_bytes += added.size
            while self._waiting and self._is_full():
                oldest = self._waiting.popleft()
                oldest.span = None
                self._held_bytes -= oldest.size
                self.dropped += 1
            self._processor.on_end(added)  # type: ignore[arg-type]  # it reads only the context
        if dropped != self.dropped:
            hint("queue full", _full(self._most_spans, self._settings.max_queue_bytes))

    def _is_full(self) -> bool:
        return len(self._waiting) > self._most_spans or self._held_bytes > self._settings.max_queue_bytes

    def counts(self) -> dict[str, int]:
        """Return the counts of the spans that ended while this was connected, by their names in
        [`CaptureStatistics`][ragtrace.capture.instrumentation.CaptureStatistics].
        """
        with self._lock:
            ended, dropped = self.ended, self.dropped
        exported, failed = self.exported, self.failed
        return {
            "spans_ended": ended,
            "spans_exported": exported,
            "spans_failed": failed,
            "spans_dropped": dropped,
            "spans_waiting": max(0, ended - exported - failed - dropped),
        }

    def flush(self, timeout_s: float) -> bool:
        """Export the queue; return whether the endpoint accepted all spans in time."""
        failed = self.failed
        done = _InThread(self._processor.force_flush)
        done.join(timeout_s)
        return not done.is_alive() and self.failed == failed

    def close(self, timeout_s: float) -> bool:
        """Export the queue and stop; give up if the endpoint makes no progress.

        Returns whether the endpoint accepted all spans.
        """
        failed = self.failed
        deadline = time.monotonic() + timeout_s
        closing = _InThread(self._processor.shutdown)
        while closing.is_alive():
            exported = self.exported
            closing.join(max(0.0, min(STALL_TIMEOUT_S, deadline - time.monotonic())))
            if closing.is_alive() and (self.exported == exported or time.monotonic() >= deadline):
                self.shutdown()
                closing.join(STALL_TIMEOUT_S)
                break
        ended, exported, failed_now, dropped, waiting = self.counts().values()
        if ended and not exported:
            hint(_UNREACHABLE, self._unreachable)
        if ended != exported:
            log.warning(
                "ragtrace: of %d spans %d were sent; %d were refused or given up, %d found the queue full",
                *(ended, exported, failed_now + waiting, dropped),
            )
        return not closing.is_alive() and self.failed == failed

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch of slots, one request's worth at a time: the rest can still be dropped."""
        slots: Sequence[WaitingSpan] = spans  # type: ignore[assignment]  # `take` queues slots
        portion: list[WaitingSpan] = []
        size = 0
        all_taken = True
        for slot in slots:
            if portion and size + slot.most_bytes_sent > REQUEST_BYTES:
                all_taken &= self._send(portion)
                portion, size = [], 0
            with self._lock:  # slots come in the order in which they were added
                is_next = bool(self._waiting) and self._waiting[0] is slot
                if is_next:
                    self._waiting.popleft()
            if is_next:
                portion.append(slot)
                size += slot.most_bytes_sent
        if portion:
            all_taken &= self._send(portion)
        return SpanExportResult.SUCCESS if all_taken else SpanExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: `export` returns when all is sent."""
        return True

    def shutdown(self) -> None:
        """Close the exporter."""
        if not self._closed:
            self._closed = True
            if self._exporter is not None and self._is_open:
                _quietly(self._exporter.shutdown)

    def _opened(self) -> SpanExporter | None:
        # asked again in a forked child: a server's worker replaces its sockets there
        settings = cooperative(self._settings, os.environ)
        if not settings.exports:
            return None
        return open_span_exporter(
            protocol=settings.protocol,
            endpoint=settings.endpoint,
            headers=dict(settings.headers),
            on_redirect=partial(_say_redirected, settings.target),
        )

    def _send(self, portion: Sequence[WaitingSpan]) -> bool:
        spans = [slot.span for slot in portion if slot.span is not None]
        taken = not self._closed and _quietly(lambda: self._sent(spans))
        with self._lock:
            for slot in portion:
                slot.span = None
                self._held_bytes -= slot.size
        if taken:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        if not self._closed:  # else the caller of `close` has the result, so a late thread stays silent
            if not taken and not self._failing and not hint(_UNREACHABLE, self._unreachable):
                log.warning("ragtrace: spans could not be sent: is the endpoint up, and does it take them?")
            elif taken and self._failing:
                log.info("ragtrace: spans are being sent again")
            self._failing = not taken
        return taken

    def _sent(self, spans: Sequence[ReadableSpan]) -> bool:
        if not self._is_open:
            self._exporter, self._is_open = self._opened(), True
        return self._exporter is None or self._exporter.export(spans) is SpanExportResult.SUCCESS


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


def _unreachable(settings: Settings) -> str:
    by = "gRPC" if settings.protocol == "grpc" else "HTTP"
    line = f"no span could be sent to {settings.target} by {by}: is a collector there, and does it take them?"
    if settings.target_by != "default":
        return line
    return (
        f"{line} No endpoint is set, and this is the default: set yours with "
        "`ragtrace.instrument(endpoint=…)` or OTEL_EXPORTER_OTLP_ENDPOINT"
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


def _full(most_spans: int, most_bytes: int) -> str:
    return (
        f"spans end faster than their endpoint takes them: {most_bytes >> 20} MiB or {most_spans:,} spans"
        " wait, and the oldest are dropped; `ragtrace.statistics()` counts them, and"
        " `ragtrace.instrument(max_queue_bytes=…)` or RAGTRACE_MAX_QUEUE_BYTES changes the limit"
    )


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
