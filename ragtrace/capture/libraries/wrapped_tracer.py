"""A wrapper of a tracer: a changed ``start_span`` also applies to ``start_as_current_span``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span, Tracer, use_span


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
