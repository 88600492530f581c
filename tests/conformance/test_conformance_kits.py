"""The kits for stores and sinks: ours hold to them, and they catch those that lose what they accepted."""

from __future__ import annotations

import pytest

from ragtrace.backends import MemorySink
from ragtrace.testing import check_sink


class Buffering(MemorySink):
    """Says that it has a request, and hands it over with the next one: the last is lost when it is closed."""

    held: bytes | None = None

    async def send(self, request: bytes) -> None:
        if self.held is not None:
            await super().send(self.held)
        self.held = request


class Cutting(MemorySink):
    async def send(self, request: bytes) -> None:
        await super().send(request if not self.requests else b"")


@pytest.mark.parametrize(
    ("sink", "complaint"), [(Buffering(), "does not have the span"), (Cutting(), "accepted 20 spans")]
)
async def test_a_sink_that_loses_spans_is_caught(sink: MemorySink, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_sink(sink, taken=lambda: sink.spans)
