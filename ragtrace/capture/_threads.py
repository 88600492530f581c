"""Carry the current call into the threads that it starts and the pools that it uses.

Python gives a new thread an empty context, so a retrieval there would begin a trace of its own. The call is
carried only as long as it lasts: what a worker that outlives it does later is no part of it.
"""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.trace import INVALID_SPAN, Span, get_current_span, set_span_in_context

from ragtrace.capture._guard import active, guarded
from ragtrace.capture._recording import Recording, enclosing, here
from ragtrace.capture.libraries.langchain_runs import current_run, under_way

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
