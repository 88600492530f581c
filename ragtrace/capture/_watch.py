"""Warn if no ended span is part of a RAG call."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

from ragtrace import semconv
from ragtrace.capture._hints import hint

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


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
