"""A sink that keeps what it is given: for tests, of ragtrace and of its users."""

from __future__ import annotations

from collections.abc import Iterable

from ragtrace.errors import SendError
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span


class MemorySink:
    """Keep every request. Fails with ``failures`` first, one a request, then takes everything."""

    def __init__(self, *, failures: Iterable[SendError] = ()) -> None:
        self.requests: list[bytes] = []
        """What was taken, in order."""
        self._failures = list(failures)

    @property
    def name(self) -> str:
        """``memory``."""
        return "memory"

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every span that was taken, in order."""
        return tuple(span for request in self.requests for span in decode(request))

    async def send(self, request: bytes) -> None:
        """Keep the request, or raise the next planned failure."""
        if self._failures:
            raise self._failures.pop(0)
        self.requests.append(request)

    async def aclose(self) -> None:
        """Keep what was taken: tests look at it after the sink is closed."""
