"""Tracers before the application's: calls of a LangChain run go below it, and content by the policy.

OpenInference never makes a run's span current, because a callback that is never closed would leave it current
forever. So the spans of an OpenAI client or a vector store inside the run would start new traces. Here
ragtrace only *tracks* the active run and looks it up when a span starts. A run that has ended, or whose
stream waits for its reader, is never a parent: what the reader does is no part of it. Nor is a span that
another library left current in its reader's context, as pydantic-ai does.

The content policy is applied to other libraries' spans before any text reaches them. It wraps the provider,
not an exporter, so it covers all exporters of the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import sys
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from opentelemetry.context import Context, attach
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
    use_span,
)
from opentelemetry.util.types import Attributes, AttributeValue

from ragtrace import semconv
from ragtrace.capture._guard import guarded
from ragtrace.capture.privacy.policy import MESSAGES, ContentFilter, ContentPolicy
from ragtrace.capture.values import compact_json
from ragtrace.model import Part


class WrappedTracer(Tracer):
    """Delegates to a tracer; a subclass overrides ``start_span``."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @abstractmethod
    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Span:
        """Start a span."""

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # like the API's, it is a decorator too
        self,
        name: str,
        *args: Any,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
        **kwargs: Any,
    ) -> Iterator[Span]:
        """Start a span with the tracer and make it current."""
        of_exceptions = {
            "record_exception": record_exception,
            "set_status_on_exception": set_status_on_exception,
        }
        span = self.start_span(name, *args, **of_exceptions, **kwargs)
        with use_span(span, end_on_exit=end_on_exit, **of_exceptions):
            yield span


_SPLITTERS = ("Splitter", "NodeParser")


class WrappingProvider(TracerProvider):
    """Returns the tracers of a provider, wrapped."""

    def __init__(self, provider: TracerProvider, wrap: Callable[[Tracer], Tracer]) -> None:
        self._provider = provider
        self._wrap = wrap

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer of the provider, wrapped."""
        return self._wrap(self._provider.get_tracer(*args, **kwargs))


class NestingTracer(WrappedTracer):
    """Starts a span under the active LangChain run if that is nearer than the current span."""

    def start_span(self, name: str, context: Context | None = None, *args: Any, **kwargs: Any) -> Span:
        """Start a span as the tracer does, but none that would be taken for a RAG call and is none.

        That is a splitter of LlamaIndex, or a call inside a run that another traces and never makes current.
        """
        where = run_context() if context is None else context
        around = get_current_span(where).get_span_context()
        if name.partition(".")[0].endswith(_SPLITTERS) or (not around.is_valid and _is_in_left_run()):
            return NonRecordingSpan(around)
        span = self._tracer.start_span(name, where, *args, **kwargs)
        stream = _stream()
        if stream is not None:
            _begun[span] = (stream, get_current_span(where))
        return span


class _Stream(NamedTuple):
    """A generator that may leave a span current when it waits for its reader."""

    place: tuple[int, int]
    """A thread and a task: what runs in others was started by it."""
    frame: int
    """The generator's frame, by id: keeping the frame would keep what it holds."""

    @property
    def waits(self) -> bool:
        """Whether its reader has it."""
        return self.place == _place() and self.frame not in _generators()


_begun: WeakKeyDictionary[Span, tuple[_Stream, Span]] = WeakKeyDictionary()
"""The stream that a span began in, and the span around it."""
_around_task: ContextVar[_Stream | None] = ContextVar("ragtrace.stream", default=None)
"""The stream that a library serves with tasks of its own."""


def _stream() -> _Stream | None:
    around = _around_task.get()
    return _generator() or (around if around and around.place != _place() else None)


def _generator() -> _Stream | None:
    frame = next(_generators(), None)
    return None if frame is None else _Stream(_place(), frame)


def _current_span() -> Span:
    """Return the current span, or the nearest around it that is of no stream that was left or waits."""
    span = get_current_span()
    while span in _begun and (_begun[span][0].waits or getattr(span, "end_time", None) is not None):
        span = _begun[span][1]
    return span


def follow_agents(agent: Any) -> Callable[[], None]:
    """Let no run of pydantic-ai begin inside a stream that was left: its spans stay current there.

    It runs models in tasks of its own, and carries their context back to the reader.
    """
    iterate = agent.iter

    @functools.wraps(iterate)
    @contextlib.asynccontextmanager
    async def begun(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if (context := run_context()) is not None:
            attach(context)
        _around_task.set(_stream())
        async with iterate(*args, **kwargs) as run:
            yield run

    agent.iter = begun

    def restore() -> None:
        agent.iter = iterate

    return restore


@guarded
def follow_runs(instrumentor: Any) -> Callable[[], None] | None:
    """Track the active run and the ids of its chunks through OpenInference's LangChain tracer.

    There is no public API for it. If the private names change, spans are siblings instead of children.
    Returns a function that restores what it replaced.
    """
    tracer = instrumentor._tracer  # noqa: SLF001
    start, end = tracer._start_trace, tracer._end_trace  # noqa: SLF001 - LangChain's tracers override these

    def start_trace(run: Any) -> None:
        start(run)
        _begin(tracer, run)

    def end_trace(run: Any) -> None:
        _complete(tracer, run)
        end(run)

    tracer._start_trace, tracer._end_trace = start_trace, end_trace  # noqa: SLF001
    tracer.run_inline = True  # else callbacks of an async application run in threads with copied contexts
    restore_closing = _follow_closing()

    def restore() -> None:
        tracer._start_trace, tracer._end_trace = start, end  # noqa: SLF001
        restore_closing()

    return restore


_runs_are_left = False


def leave_runs() -> Callable[[], None]:
    """Leave LangChain's runs to another tracer. Returns a function that takes them back."""
    global _runs_are_left
    _runs_are_left = True

    def take_back() -> None:
        global _runs_are_left
        _runs_are_left = False

    return take_back


def _is_in_left_run() -> bool:
    config = sys.modules.get("langchain_core.runnables.config")
    return _runs_are_left and config is not None and config.var_child_runnable_config.get() is not None


def _follow_closing() -> Callable[[], None]:
    """Notice that a reader leaves a chain's ``stream``: LangChain ends the run as if it were whole."""
    runnable = import_module("langchain_core.runnables.base").Runnable
    stream = runnable._transform_stream_with_config  # noqa: SLF001 - all chains stream through it

    @functools.wraps(stream)
    def streamed(*args: Any, **kwargs: Any) -> Iterator[Any]:
        pieces = stream(*args, **kwargs)
        for piece in pieces:
            try:
                yield piece
            except GeneratorExit:
                closing = _closing.set(True)
                try:
                    pieces.close()
                finally:
                    _closing.reset(closing)
                raise

    runnable._transform_stream_with_config = streamed  # noqa: SLF001

    def restore() -> None:
        if runnable._transform_stream_with_config is streamed:  # noqa: SLF001
            runnable._transform_stream_with_config = stream  # noqa: SLF001

    return restore


_closing: ContextVar[bool] = ContextVar("ragtrace.langchain.closing", default=False)
"""Whether a stream is being closed by its reader."""


def in_retriever() -> bool:
    """Return whether a LangChain retriever is active here."""
    run = current_run()
    return run is not None and run.kind == "retriever"


def run_context() -> Context | None:
    """Return the context of the active LangChain run, or of the span around a stream that was left.

    ``None`` means that the current context is right.
    """
    span, run = _current_span(), current_run()
    if run is not None and _start_of(span) <= _start_of(run.span):
        return set_span_in_context(run.span)  # the current span did not begin inside the run
    return None if span is get_current_span() else set_span_in_context(span)


def _start_of(span: Span) -> int:
    return getattr(span, "start_time", None) or 0


def current_run() -> Run | None:
    """Return the nearest LangChain run that this code is part of."""
    run = under_way.get()
    while run is not None and not run.is_active:
        run = run.around
    return run


class Run(NamedTuple):
    """A LangChain run with its span."""

    span: Span
    id: object
    kind: str
    around: Run | None
    tracer: Any
    stream: _Stream | None
    """The generator that it began in."""

    @property
    def is_active(self) -> bool:
        """Whether it is open, and no stream that waits for its reader."""
        # not `is_recording`: calls of an unsampled run must be unsampled too
        return self.tracer.get_span(self.id) is not None and not (self.stream and self.stream.waits)


under_way: ContextVar[Run | None] = ContextVar("ragtrace.langchain", default=None)


def _place() -> tuple[int, int]:
    try:
        task = id(asyncio.current_task())
    except RuntimeError:  # no event loop runs here
        task = 0
    return threading.get_ident(), task


def _generators() -> Iterator[int]:
    """Yield the ids of the generators that are executing, the innermost first; context managers are none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to know who executes
    while frame is not None:
        around = frame.f_back
        is_manager = around is not None and around.f_code.co_filename == contextlib.__file__
        if frame.f_code.co_flags & _GENERATOR and not is_manager:
            yield id(frame)
        frame = around


_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@guarded
def _begin(tracer: Any, run: Any) -> None:
    span = tracer.get_span(run.id)
    if span is not None:
        under_way.set(Run(span, run.id, run.run_type, current_run(), tracer, _generator()))


@guarded
def _complete(tracer: Any, run: Any) -> None:
    span = tracer.get_span(run.id)
    if span is None:
        return
    here = under_way.get()
    if here is not None and here.span is span:
        under_way.set(here.around)
    if run.run_type == "retriever" and run.outputs:
        span.set_attributes(dict(_document_ids(run.outputs["documents"])))
    if _closing.get() or (run.error and run.error.startswith(_LEFT)):
        # for OpenInference this is an error like any other
        span.set_attributes({semconv.RAG_STREAM_COMPLETE: False, semconv.RAG_STREAM_END: semconv.READER_LEFT})


_LEFT = ("GeneratorExit", "CancelledError", "asyncio.exceptions.CancelledError")
"""How the errors of a run begin whose reader left, or whose task was cancelled."""


def _document_ids(documents: list[Any]) -> Iterator[tuple[str, str]]:
    for index, document in enumerate(documents):
        if document.id is not None:  # OpenInference writes only content and metadata
            yield f"retrieval.documents.{index}.document.id", str(document.id)


_NAMES = frozenset(
    {"address", "finish_reason", "finish_reasons", "id", "kind", "mime_type"}
    | {"model", "model_name", "name", "provider", "role", "system", "type"}
)
"""Key suffixes of values that are not text: long digits in them are not phone numbers."""


class PolicedTracer(WrappedTracer):
    """Starts spans that follow the policy; its modes are ``on`` and ``redacted``."""

    def __init__(self, tracer: Tracer, policy: ContentPolicy) -> None:
        super().__init__(tracer)
        self._policy = policy

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        *args: Any,
        **kwargs: Any,
    ) -> Span:
        # Attributes are set after the start: their pseudonyms depend on the trace id.
        span = self._tracer.start_span(name, context, kind, None, *args, **kwargs)
        if not span.is_recording():
            return span
        if _police(span, self._policy) is None:
            return NonRecordingSpan(span.get_span_context())
        if attributes:
            span.set_attributes(attributes)
        return span


@guarded
def _police(span: Any, policy: ContentPolicy) -> bool:
    """Wrap this span's setters with the policy; `record_exception` and `__exit__` call them."""
    content_filter = ContentFilter(policy, span.get_span_context().trace_id)
    set_attributes, add_event, set_status = span.set_attributes, span.add_event, span.set_status

    @guarded
    def set_policed(attributes: Mapping[str, AttributeValue]) -> None:
        set_attributes({**_policed(attributes, content_filter), **content_filter.marks()})

    def set_one_policed(key: str, value: AttributeValue) -> None:
        set_policed({key: value})

    @guarded
    def add_policed(name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        add_event(name, _policed(attributes or {}, content_filter), timestamp)

    @guarded
    def set_policed_status(status: Status | StatusCode, description: str | None = None) -> None:
        code = status.status_code if isinstance(status, Status) else status
        said = status.description if isinstance(status, Status) else description
        set_status(Status(code, _text(said, content_filter) if code is StatusCode.ERROR else None))

    span.set_attributes, span.set_attribute = set_policed, set_one_policed
    span.add_event, span.set_status = add_policed, set_policed_status
    return True


def _policed(
    attributes: Mapping[str, AttributeValue], content_filter: ContentFilter
) -> dict[str, AttributeValue]:
    policed = {key: _value(key, value, content_filter) for key, value in attributes.items()}
    return {key: value for key, value in policed.items() if value is not None}


@guarded
def _value(key: str, value: AttributeValue, content_filter: ContentFilter) -> AttributeValue | None:
    if isinstance(value, str):
        return _string(key, value, content_filter)
    if isinstance(value, Sequence):
        policed = [_string(key, each, content_filter) if isinstance(each, str) else each for each in value]
        return [each for each in policed if each is not None]
    return value


def _string(key: str, value: str, content_filter: ContentFilter) -> str | None:
    if value == semconv.OI_REDACTED:
        return value
    if key.rpartition(".")[2] in _NAMES or key.endswith("_id"):
        return content_filter.policy.identifier(value)
    return _text_or_json(value, content_filter)


def _text_or_json(text: str, content_filter: ContentFilter) -> str | None:
    if text[:1] in {"{", "["}:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            pass  # not JSON: plain text
        else:
            return compact_json(_leaves(document, content_filter))
    return _text(text, content_filter)


def _leaves(node: object, content_filter: ContentFilter) -> object:
    """Apply the policy to the strings of a document, and to numbers as long as a card's."""
    if isinstance(node, dict):
        return {
            str(_text(key, content_filter)): _leaves(value, content_filter) for key, value in node.items()
        }
    if isinstance(node, list):
        return [_leaves(value, content_filter) for value in node]
    is_long = isinstance(node, int) and abs(node) >= content_filter.longest_number
    if isinstance(node, str) or is_long:
        text = _text(node, content_filter)
        return node if is_long and text == str(node) else text
    return node


def _text(value: object, content_filter: ContentFilter) -> str | None:
    return content_filter.text(value, Part.CONTEXT, content_filter.policy.max_messages_bytes, MESSAGES)
