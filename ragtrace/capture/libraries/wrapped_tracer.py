"""A tracer around another: what it changes of ``start_span`` holds for current spans too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span, Tracer, use_span


class WrappedTracer(Tracer):
    """Starts spans by a tracer; a subclass says how."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @abstractmethod
    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Span:
        """Start a span."""

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # the API's is a decorator too: so is this one
        self,
        name: str,
        *args: Any,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
        **kwargs: Any,
    ) -> Iterator[Span]:
        """Start a span as the tracer does, and make it the current one."""
        of_exceptions = {
            "record_exception": record_exception,
            "set_status_on_exception": set_status_on_exception,
        }
        span = self.start_span(name, *args, **of_exceptions, **kwargs)
        with use_span(span, end_on_exit=end_on_exit, **of_exceptions):
            yield span
