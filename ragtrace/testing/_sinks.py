"""The contract of sinks: the receiver has all accepted spans, however the sink is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ragtrace.errors import SendError
from ragtrace.ports import SpanSink
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Resource, Span

_START_NS: Final = 1_760_000_000_000_000_000
_AT_ONCE: Final = 20
_TIMEOUT_S: Final = 30.0


async def check_sink(sink: SpanSink, *, taken: Callable[[], Sequence[Span]]) -> None:
    """Check that the receiver has all spans that a sink accepted, even if the sink is closed during requests.

    ``taken`` returns the receiver's spans in any order. The check closes the sink.

    Raises:
        AssertionError: the sink broke the contract; the message says how.
    """
    assert sink.name, "`name` is empty: people read it in logs"
    first = _span(0)
    await _in_time(sink.send(encode([first])), "sending one span")
    assert first in taken(), "`send` returned, and the receiver does not have the span as it was sent"
    spans = [_span(number) for number in range(1, _AT_ONCE + 1)]
    async with asyncio.TaskGroup() as group:
        sends = [group.create_task(_try_send(sink, span)) for span in spans]
        await asyncio.sleep(0)  # they are under way
        await _in_time(sink.aclose(), "closing while requests are under way")
    await _in_time(sink.aclose(), "closing twice")
    at_receiver = taken()
    accepted = [span for span, send in zip(spans, sends, strict=True) if send.result()]
    lost = sum(span not in at_receiver for span in accepted)
    assert not lost, f"it accepted {lost} spans before it was closed that the receiver does not have"


async def _try_send(sink: SpanSink, span: Span) -> bool:
    """Return whether the sink accepted the span. If not, it must raise a SendError."""
    try:
        await _in_time(sink.send(encode([span])), "sending while the sink is closed")
    except SendError:
        return False
    return True


async def _in_time(work: Awaitable[None], what: str) -> None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await work
    except TimeoutError as exc:
        raise AssertionError(f"{what} takes more than {_TIMEOUT_S:g} s") from exc


def _span(number: int) -> Span:
    return Span(
        trace_id=f"{number + 1:032x}",
        span_id=f"{number + 1:016x}",
        parent_span_id=None,
        name=f"span {number}",
        start_ns=_START_NS,
        end_ns=_START_NS + 1_000_000,
        attributes={"number": number, "text": "für Gäste"},
        resource=Resource(attributes={"service.name": "check"}),
    )
