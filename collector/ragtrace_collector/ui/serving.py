"""Make the pages from a configuration, with what they read and keep, and serve them until told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.applications import Starlette

from ragtrace.answer_sources import open_source
from ragtrace.answers.index.own_file import open_index
from ragtrace.answers.index.reading import AnswerIndex
from ragtrace.answers.opened import AnswerSource
from ragtrace.ports import Clock, SpanSink
from ragtrace.reviews.file import ReviewDelivery, ReviewFile
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.ui.app import ui_app
from ragtrace_collector.ui.searching import AnswerSearch
from ragtrace_collector.ui.security import UiAccess
from ragtrace_collector.ui.session import Sessions
from ragtrace_collector.ui.site import CollectorStatus, Site, TraceLink
from ragtrace_collector.web.auth import ReceiverAuth
from ragtrace_collector.web.certificate import Certificate
from ragtrace_collector.web.server import HttpServer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlace:
    """An index, and where the content of its answers is."""

    index: AnswerIndex
    source: AnswerSource
    notices: Callable[[], tuple[str, ...]] = tuple
    """Sentences about what the index does not have (yet)."""


@asynccontextmanager
async def open_searched_place(search: AnswerSearch) -> AsyncIterator[AnswerPlace]:
    """Open an index in memory that a search fills in the background.

    Raises:
        ConfigError: the address cannot be used.
    """
    source = open_source(search.address, access=search.access, rules=search.rules)
    async with aclosing(source), aclosing(open_index()) as index:
        filling = asyncio.create_task(search.run(index), name="search")
        try:
            yield AnswerPlace(index=index, source=source, notices=search.notices)
        finally:
            filling.cancel()
            await asyncio.wait([filling])


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


def configured_app(
    config: CollectorConfig,
    place: AnswerPlace,
    *,
    auth: ReceiverAuth,
    clock: Clock,
    reviews: ReviewPlace | None = None,
    status: CollectorStatus | None = None,
) -> Starlette:
    """Return the pages as the sections ``ui`` and ``receive`` say."""
    ui = config.ui
    site = Site(
        index=place.index,
        source=place.source,
        notices=place.notices,
        reviews=reviews.file if reviews else None,
        review_sinks=reviews.sinks if reviews else (),
        review_content=reviews.content if reviews else True,
        clock=clock,
        status=status,
        links=tuple(TraceLink(name=name, template=url) for name, url in ui.links.items()),
    )
    is_secure = auth.certificate is not None or (ui.public_url or "").startswith("https:")
    sessions = Sessions(auth.access, clock, lifetime_s=_LOGIN_S)
    return ui_app(site, access=UiAccess(tokens=auth.access, sessions=sessions, is_secure=is_secure))


_LOGIN_S: Final = 12 * 3600


async def serve_until(
    stop: asyncio.Event, app: Starlette, listening: socket.socket, *, certificate: Certificate | None = None
) -> None:
    """Serve on a bound socket until ``stop`` is set, and answer what is open."""
    with closing(listening):
        server = HttpServer(app, listening, certificate=certificate)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(), name="ui")
            await stop.wait()
            server.stop()
