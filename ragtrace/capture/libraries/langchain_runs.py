"""Make the spans of a LangChain run's calls children of the run's span.

OpenInference never makes a run's span current, because a callback that is never closed would leave it current
forever. So the spans of an OpenAI client or a vector store inside the run would start new traces. Here
ragtrace only *tracks* the active run and looks it up when a span starts. A run that has ended, or was left
open in an abandoned context, is never a parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)

from ragtrace.capture._guard import guarded
from ragtrace.capture.libraries.wrapped_tracer import WrappedTracer


class NestingProvider(TracerProvider):
    """Returns tracers whose spans start under the active LangChain run, if there is one."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer of the provider, wrapped."""
        return _NestingTracer(self._provider.get_tracer(*args, **kwargs))


class _NestingTracer(WrappedTracer):
    """Starts a span under the run if the run is nearer than the current span."""

    def start_span(self, name: str, context: Context | None = None, *args: Any, **kwargs: Any) -> Span:
        """Start a span as the tracer does."""
        where = run_context() if context is None else context
        return self._tracer.start_span(name, where, *args, **kwargs)


@guarded
def follow_runs(instrumentor: Any) -> None:
    """Track the active run and the ids of its chunks through OpenInference's LangChain tracer.

    There is no public API for it. If the private names change, spans are siblings instead of children.
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


def in_retriever() -> bool:
    """Return whether a LangChain retriever is active here."""
    run = _under_way.get()
    return run is not None and run.kind == "retriever" and run.is_open


def run_context() -> Context | None:
    """Return the context of the active LangChain run, unless a nearer span is current."""
    here = _under_way.get()
    if here is None:
        return None
    run = _open(here)
    if run is None:
        return None
    begun = getattr(get_current_span(), "start_time", None)
    if begun is not None and begun > (getattr(run.span, "start_time", None) or 0):
        return None  # the current span began inside the run
    return set_span_in_context(run.span)


class _Run(NamedTuple):
    span: Span
    id: object
    kind: str
    around: _Run | None
    tracer: Any

    @property
    def is_open(self) -> bool:
        # not `is_recording`: calls of an unsampled run must be unsampled too
        return self.tracer.get_span(self.id) is not None


_under_way: ContextVar[_Run | None] = ContextVar("ragtrace.langchain", default=None)


@guarded
def _begin(tracer: Any, run: Any) -> None:
    span = tracer.get_span(run.id)
    if span is not None:
        _under_way.set(_Run(span, run.id, run.run_type, _open(_under_way.get()), tracer))


@guarded
def _complete(tracer: Any, run: Any) -> None:
    span = tracer.get_span(run.id)
    if span is None:
        return
    here = _under_way.get()
    if here is not None and here.span is span:
        _under_way.set(_open(here.around))
    if run.run_type == "retriever" and run.outputs:
        span.set_attributes(dict(_document_ids(run.outputs["documents"])))


def _document_ids(documents: list[Any]) -> Iterator[tuple[str, str]]:
    for index, document in enumerate(documents):
        if document.id is not None:  # OpenInference writes only content and metadata
            yield f"retrieval.documents.{index}.document.id", str(document.id)


def _open(run: _Run | None) -> _Run | None:
    while run is not None and not run.is_open:
        run = run.around
    return run
