"""Where reviews are kept, and the back ends that get a span for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ragtrace.ports import SpanSink
from ragtrace.reviews.file import ReviewDelivery, ReviewFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPlace:
    """An open file of reviews."""

    file: ReviewFile
    sinks: tuple[str, ...]
    content: bool
    """Whether spans of reviews have the claim and the note."""


@asynccontextmanager
async def open_reviews(
    path: Path, *, sinks: Mapping[str, SpanSink], content: bool = True
) -> AsyncIterator[ReviewPlace]:
    """Open the file, and deliver what waits in it in the background. The sinks are closed at the end.

    Raises:
        ConfigError: the file cannot be used.
    """
    async with AsyncExitStack() as stack:
        for sink in sinks.values():
            stack.push_async_callback(sink.aclose)
        file = ReviewFile(path)
        stack.push_async_callback(file.aclose)
        delivering = asyncio.create_task(ReviewDelivery(reviews=file, sinks=sinks).run(), name="reviews")
        try:
            yield ReviewPlace(file=file, sinks=tuple(sinks), content=content)
        finally:
            delivering.cancel()
            await asyncio.wait([delivering])
