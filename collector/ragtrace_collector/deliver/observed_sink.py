"""Deliveries with a span around each, and errors without the content that a back end quotes."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.errors import SendError
from ragtrace.ports import SpanSink
from ragtrace_collector.telemetry.tracing import working

_LONGEST_REASON: Final = 300
_QUOTE_BYTES: Final = 16
"""A run of this many bytes that also occurs in the request counts as a quote."""


class ObservedSink:
    """A sink whose deliveries are traced, and whose errors contain nothing of the request."""

    def __init__(self, sink: SpanSink, tracer: Tracer) -> None:
        self._sink = sink
        self._tracer = tracer

    @property
    def name(self) -> str:
        """The sink's name."""
        return self._sink.name

    async def send(self, request: bytes) -> None:
        """Send through the sink."""
        with working(self._tracer, "deliver") as span:
            span.set_attributes({"ragtrace.sink": self.name, "ragtrace.bytes": len(request)})
            try:
                await self._sink.send(request)
            except SendError as exc:
                exc.args = (without_quotes(str(exc), request),)
                raise

    async def aclose(self) -> None:
        """Close the sink."""
        await self._sink.aclose()


def without_quotes(reason: str, sent: bytes) -> str:
    """Return a receiver's reason, cut at the point where it quotes the request."""
    reason = reason[:_LONGEST_REASON]
    text = reason.encode()
    for start in range(len(text) - _QUOTE_BYTES + 1):
        if text[start : start + _QUOTE_BYTES] in sent:
            return text[:start].decode(errors="ignore") + "… (the rest quotes what was sent)"
    return reason
