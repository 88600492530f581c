"""An open span: the base class of the three span helpers, and of the two with an answer.

A call is carried into the threads that it starts and the pools that it uses: Python gives a new thread an
empty context, so a retrieval there would begin a trace of its own. It is carried only as long as it lasts:
what a worker that outlives it does later is no part of it.
"""

from __future__ import annotations

import concurrent.futures
import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from opentelemetry import context as otel_context
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)

from ragtrace import semconv
from ragtrace.capture._guard import active, guarded, note_unread
from ragtrace.capture.privacy.policy import ContentFilter, ContentPolicy
from ragtrace.capture.tracers import current_run, run_context, under_way
from ragtrace.capture.values import PieceReader, answer_in, body_of, hook, stated_answer
from ragtrace.model import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue

    from ragtrace.capture.privacy.policy import ContentFilter


class Recording:
    """One span of a RAG call. Open it with ``with`` or ``async with``; it does nothing while capture is off.

    A subclass sets the attributes. No method raises, whatever its arguments.
    """

    span_kind: ClassVar[SpanKind]

    # Class-level defaults keep an instance cheap while capture is off.
    _parent: Recording | Span | None = None
    _span: Span | None = None
    _content_filter: ContentFilter | None = None
    _inside: Context | None = None
    _token: Token[Context] | None = None
    _marker: Token[Recording | None] | None = None
    _around: Recording | None = None
    _open = False
    _streaming = False
    is_stream = False
    """Whether the function returns its result in pieces."""

    @property
    def span(self) -> Span | None:
        """The OpenTelemetry span, for your own attributes; ``None`` while capture is off."""
        return self._span

    @property
    def is_open(self) -> bool:
        """Whether the span has begun and not ended."""
        return self._open

    @property
    def trace_id(self) -> str | None:
        """32 lower-case hex digits; ``None`` while capture is off."""
        return self._id(lambda context: format_trace_id(context.trace_id))

    @property
    def span_id(self) -> str | None:
        """16 lower-case hex digits; ``None`` while capture is off."""
        return self._id(lambda context: format_span_id(context.span_id))

    def __enter__(self) -> Self:
        if active() is not None:
            self.start()
            self.step_in()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is not None:
            self.step_out()
            self.finish(exc)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    @guarded
    def start(self) -> None:
        """Start the span without making it current."""
        recorder = active()
        if recorder is None:
            return
        parent = None if self._parent is None else _span_of(self._parent)
        context = run_context() if parent is None else set_span_in_context(parent)
        attributes = recorder.policy.written(self._at_start(recorder.policy))
        called = self._name(attributes, recorder.policy)
        self._span = recorder.tracer.start_span(
            called, context=context, kind=self.span_kind, attributes=attributes
        )
        self._open = True
        self._inside = set_span_in_context(self._span, context)
        if self._span.is_recording():
            self._content_filter = ContentFilter(recorder.policy, self._span.get_span_context().trace_id)

    @guarded
    def step_in(self) -> None:
        """Make the span current for the code that runs next in this thread or task."""
        if self._inside is not None:
            self._token = otel_context.attach(self._inside)
            if self._around is None:
                self._around = here.get()
            self._marker = here.set(self)

    def pause(self) -> None:
        """Leave the span between two pieces of a stream; the next step restores the context of its code."""
        if self._token is not None:
            self._inside = otel_context.get_current()
        self.step_out()

    @guarded
    def step_out(self) -> None:
        """Restore the previous context."""
        token, self._token = self._token, None
        marker, self._marker = self._marker, None
        if token is None or marker is None:
            return
        try:
            here.reset(marker)
        except ValueError:
            # Closed in another context than it was opened in, as when an event loop closes a forgotten
            # generator: our span is not current here.
            return
        otel_context.detach(token)

    def __del__(self) -> None:
        # An unstarted generator runs no `finally`, nor does an async one after its event loop closed.
        if self._open and not sys.is_finalizing():
            self.finish(GeneratorExit())

    @guarded
    def finish(self, exc: BaseException | None = None) -> None:
        """Write the recorded attributes and end the span. Later calls do nothing."""
        span = self._span
        if span is None or not self._open:
            return
        self._open = False
        try:
            if self._content_filter is not None:
                self._write(span, self._content_filter, exc)
        finally:
            span.end()

    def expect(self, media_type: str) -> None:
        """Note the media type of the stream that a decorated function returned."""

    def take(self, piece: object) -> None:
        """Note a streamed piece of a decorated function."""

    def conclude(self, result: object) -> None:
        """Note the return value of a decorated function."""

    def _write(self, span: Span, content_filter: ContentFilter, exc: BaseException | None) -> None:
        attributes = _content(self, content_filter) or {}
        attributes.update(content_filter.marks())
        is_stream = self._streaming or self.is_stream
        # cancellation in asyncio, trio and gevent, and a closed generator: no errors of the application
        cancelled = exc is not None and not isinstance(exc, Exception | SystemExit | KeyboardInterrupt)
        left = isinstance(exc, GeneratorExit) or (cancelled and is_stream)
        if left or is_stream:
            # a hand-made stream has no finish reason: only we know that it was read to its end
            attributes[semconv.RAG_STREAM_COMPLETE] = exc is None
            if exc is not None:
                attributes[semconv.RAG_STREAM_END] = semconv.READER_LEFT if left else semconv.STREAM_FAILED
        span.set_attributes(content_filter.policy.written(attributes))
        if exc is not None and not left:
            _write_error(span, exc, content_filter)

    @guarded
    def _id(self, read: Callable[[SpanContext], str]) -> str | None:
        # the tracer is the application's: its span ids may be invalid
        return None if self._span is None else read(self._span.get_span_context())

    def _name(self, attributes: Mapping[str, AttributeValue], policy: ContentPolicy) -> str:
        """Return the span's name, based on its initial attributes."""
        raise NotImplementedError

    def _at_start(self, policy: ContentPolicy) -> Mapping[str, AttributeValue]:
        raise NotImplementedError

    def _at_end(self, content_filter: ContentFilter) -> dict[str, AttributeValue]:
        raise NotImplementedError


here: ContextVar[Recording | None] = ContextVar("ragtrace.here", default=None)
"""The recording whose code runs."""


def enclosing() -> Iterator[Recording]:
    """Yield the open recordings that this code runs in, the nearest first."""
    recording = here.get()
    while recording is not None:
        if recording.is_open:
            yield recording
        recording = recording._around  # noqa: SLF001 - this module's


@guarded
def _span_of(parent: object) -> Span | None:
    found = parent.span if isinstance(parent, Recording) else parent
    if isinstance(found, Span):
        return found
    note_unread("parent", parent)
    return None


@guarded
def _content(recording: Recording, content_filter: ContentFilter) -> dict[str, AttributeValue]:
    return recording._at_end(content_filter)  # noqa: SLF001 - a subclass's


def _write_error(span: Span, exc: BaseException, content_filter: ContentFilter) -> None:
    kind = type(exc)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute(semconv.ERROR_TYPE, name)
    # The message may quote captured text, which no limit or redaction has processed.
    span.set_status(Status(StatusCode.ERROR, name))
    if content_filter.policy.verbatim:
        span.record_exception(exc)


AnswerOf = Callable[..., object]
"""Extracts the answer's text from a returned value, or the next piece from a yielded one."""


_ANSWER_OF = "function that finds the answer"


class AnsweredRecording(Recording):
    """Base class of the spans of RAG calls and generations."""

    _answer: object = None
    _answer_of: AnswerOf | None = None
    _pieces: list[str] | None = None
    _kept = 0
    _reader: PieceReader | None = None

    @property
    def answer(self) -> str | None:
        """The answer so far."""
        return "".join(self._pieces) if self._pieces else _text(self._answer)

    @answer.setter
    def answer(self, answer: object) -> None:
        self.set_answer(answer)

    def set_answer(self, answer: object) -> None:
        """Set the whole answer: a string, or a reply or structure that contains one."""
        self._answer = answer
        self._pieces = None

    @guarded
    def add_answer(self, piece: object) -> None:
        """Append the next piece of a streamed answer: a string, or an event that contains one."""
        text = answer_in(piece)
        if text is None or self._content_filter is None:
            return
        if not self._streaming:
            self._streaming = True
            self._on_first_piece()
        # A character has at least one byte, so a limit in characters is safe.
        if text and self._kept <= self._content_filter.policy.kept_answer_chars:
            self._keep(text)

    def expect(self, media_type: str) -> None:
        """Note the media type of the stream that a decorated function returned."""
        self._reader = PieceReader(media_type)

    @guarded
    def take(self, piece: object) -> None:
        """Note a streamed piece of a decorated function."""
        if self._reader is None:
            self._reader = PieceReader()
        find = hook(self._answer_of, _ANSWER_OF)
        found = self._reader.text(piece) if find is None else find(piece)
        self.add_answer("" if found is None else found)

    @guarded
    def conclude(self, result: object) -> None:
        """Note the return value of a decorated function."""
        find = hook(self._answer_of, _ANSWER_OF)
        if find is not None:
            self.set_answer(find(result))
            return
        body = body_of(result)
        text = answer_in(body)
        if text is None and body is not None:
            note_unread("answer", result)
        self.set_answer(text)

    def _keep(self, piece: str) -> None:
        if self._pieces is None:
            self._pieces = []
        self._pieces.append(piece)
        self._kept += len(piece)

    def _on_first_piece(self) -> None:
        """Note the start of a stream."""

    def _answer_within(self, content_filter: ContentFilter) -> str | None:
        """Return the answer after the content filter."""
        if self._reader is not None and (rest := self._reader.rest()):
            self._keep(rest)
        answer = "".join(self._pieces) if self._pieces else _stated(self._answer)
        return content_filter.text(answer, Part.ANSWER, content_filter.policy.max_answer_bytes)


@guarded
def _text(answer: object) -> str | None:
    return answer if isinstance(answer, str) else None


def _stated(answer: object) -> str | None:
    """Return the text of an answer that the application set; a structure without an answer becomes JSON."""
    if answer is None or type(answer) is str:
        return answer
    text = stated_answer(answer)
    if text is None:
        note_unread("answer", answer)
    return text


_ACROSS_INTERPRETERS = getattr(concurrent.futures, "InterpreterPoolExecutor", ())
"""Its work is pickled."""


def follow_threads() -> Callable[[], None]:
    """Replace ``ThreadPoolExecutor.submit`` and ``Thread.start``; return a function that restores them."""
    submit: Any = ThreadPoolExecutor.submit
    start = threading.Thread.start

    @functools.wraps(submit)
    def submit_inside(self: ThreadPoolExecutor, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        inside = None if isinstance(self, _ACROSS_INTERPRETERS) else _inside_the_call()
        return submit(self, fn if inside is None else functools.partial(inside, fn), *args, **kwargs)

    @functools.wraps(start)
    def start_inside(self: threading.Thread) -> None:
        inside = None if _is_worker(self) else _inside_the_call()
        if inside is None:
            return start(self)
        before = self.__dict__.get("run")
        run = self.run

        def restore() -> None:
            if before is None:
                self.__dict__.pop("run", None)
            else:
                self.run = before  # type: ignore[method-assign]

        def run_inside() -> None:
            restore()
            inside(run)

        self.run = run_inside  # type: ignore[method-assign]
        try:
            return start(self)
        except BaseException:
            restore()
            raise

    ThreadPoolExecutor.submit = submit_inside  # type: ignore[method-assign, assignment]
    threading.Thread.start = start_inside  # type: ignore[method-assign]

    def take_back() -> None:
        if ThreadPoolExecutor.submit is submit_inside:
            ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
        if threading.Thread.start is start_inside:
            threading.Thread.start = start  # type: ignore[method-assign]

    return take_back


def _is_worker(thread: threading.Thread) -> bool:
    """Return whether a pool starts this thread: it serves other calls later."""
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", None) == ThreadPoolExecutor.__module__


@guarded
def _inside_the_call() -> Callable[..., Any] | None:
    """Return a function that calls another inside the current call; ``None`` outside of any."""
    if active() is None:
        return None
    recording, span, run = next(enclosing(), None), get_current_span(), current_run()
    if recording is None and not span.is_recording() and run is None:
        return None
    carried = set_span_in_context(_Carried(span, recording), otel_context.get_current())

    def inside(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        token = otel_context.attach(carried)
        marker = here.set(recording)
        run_marker = under_way.set(run)
        try:
            return function(*args, **kwargs)
        finally:
            under_way.reset(run_marker)
            here.reset(marker)
            otel_context.detach(token)

    return inside


def _delegating(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.nearest, name)(*args, **kwargs)

    return call


class _Nearest(Span):
    """The span of a call in another thread, or its recording's once that ended; no span after the call."""

    def __init__(self, span: Span, recording: Recording | None) -> None:
        self._span = span
        self._recording = recording

    @property
    def nearest(self) -> Span:
        """The span that is open."""
        recording = self._recording
        if recording is None:
            return self._span if self._span.is_recording() else INVALID_SPAN
        if not recording.is_open or recording.span is None:
            return INVALID_SPAN
        has_ended = getattr(self._span, "end_time", None) is not None
        return recording.span if has_ended or not self._span.get_span_context().is_valid else self._span

    def __getattr__(self, name: str) -> Any:
        return getattr(self.nearest, name)


_Carried = type("_Carried", (_Nearest,), {name: _delegating(name) for name in Span.__abstractmethods__})
