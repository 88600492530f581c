"""An in-memory sink for tests."""

from __future__ import annotations

from collections.abc import Iterable

from ragtrace.errors import SendError
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span


class MemorySink:
    """Keeps every request. It first raises ``failures``, one per request, then accepts everything."""

    def __init__(self, *, failures: Iterable[SendError] = ()) -> None:
        self.requests: list[bytes] = []
        """Accepted requests, in order."""
        self._failures = list(failures)

    @property
    def name(self) -> str:
        """``memory``."""
        return "memory"

    @property
    def spans(self) -> tuple[Span, ...]:
        """All accepted spans, in order."""
        return tuple(span for request in self.requests for span in decode(request))

    async def send(self, request: bytes) -> None:
        """Keep the request, or raise the next planned failure."""
        if self._failures:
            raise self._failures.pop(0)
        self.requests.append(request)

    async def aclose(self) -> None:
        """Do nothing: tests read the requests after the sink is closed."""
