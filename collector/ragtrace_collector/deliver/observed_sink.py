"""Deliveries as those who run the collector see them: traced, and told without what a back end quotes."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.errors import SendError
from ragtrace.ports import SpanSink
from ragtrace_collector.telemetry.tracing import working

_LONGEST_REASON: Final = 300
_QUOTE_BYTES: Final = 16
"""A run of so many bytes that was sent, too, is taken for a quote."""


class ObservedSink:
    """A sink whose deliveries are traced, and whose errors hold nothing of what was sent."""

    def __init__(self, sink: SpanSink, tracer: Tracer) -> None:
        self._sink = sink
        self._tracer = tracer

    @property
    def name(self) -> str:
        """The sink's own."""
        return self._sink.name

    async def send(self, request: bytes) -> None:
        """Send, as the sink does."""
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
    """Return what a receiver gave as its reason, up to where it quotes what it was sent."""
    reason = reason[:_LONGEST_REASON]
    text = reason.encode()
    for start in range(len(text) - _QUOTE_BYTES + 1):
        if text[start : start + _QUOTE_BYTES] in sent:
            return text[:start].decode(errors="ignore") + "… (the rest quotes what was sent)"
    return reason
