"""Makes the pages from a configuration, fills and keeps what they show, and serves until told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ragtrace.answer_sources import BACK_ENDS, SearchProgress, find_answers, open_source, parse_address
from ragtrace.answers.index import AnswerIndex, OwnIndex, open_index
from ragtrace.answers.port import AnswerSource
from ragtrace.answers.shown import counted
from ragtrace.answers.summary import AnswerSummary, SessionSummary
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import RagtraceError
from ragtrace.ports import Clock, SpanSink
from ragtrace.reviews import ReviewDelivery, ReviewFile
from ragtrace.traces.extract import ExtractRules
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.telemetry.logs import event, place_of
from ragtrace_collector.ui.answer import answer_routes
from ragtrace_collector.ui.answers import answers_routes
from ragtrace_collector.ui.conversations import conversation_routes
from ragtrace_collector.ui.overview import overview_routes
from ragtrace_collector.ui.review import review_routes
from ragtrace_collector.ui.security import Gate, Sessions, UiAccess, login_routes
from ragtrace_collector.ui.site import HANDLERS, CollectorStatus, Site
from ragtrace_collector.web.server import Certificate, HttpServer, ReceiverAuth


def ui_app(site: Site, *, access: UiAccess) -> Starlette:
    """Build the application. Each page's module adds its routes here, by name: ``overview``, …"""
    app = Starlette(
        routes=[
            *overview_routes(),
            *answers_routes(),
            *answer_routes(),
            *conversation_routes(),
            *review_routes(),
            *login_routes(access),
            Mount("/static", StaticFiles(packages=[("ragtrace_collector.ui", "static")]), name="static"),
        ],
        middleware=[Middleware(Gate, access=access)],
        exception_handlers=HANDLERS,
    )
    app.state.site = site
    return app


log = logging.getLogger("ragtrace.collector")

_PAUSE_S: Final = 30.0
_OVERLAP_NS: Final = 15 * 60 * 1_000_000_000
"""Verdicts follow their answers late: each search begins so long before the end of the last one."""
_AT_ONCE: Final = 200


@dataclass(slots=True, kw_only=True)
class AnswerSearch:
    """The search of one place for answers."""

    address: str
    since_ns: int
    clock: Clock
    service: str | None = None
    access: ConnectionSettings | None = None
    on_progress: Callable[[SearchProgress], None] = lambda _: None
    rules: ExtractRules = field(default_factory=ExtractRules)
    """By which records are read."""
    pause_s: float = _PAUSE_S
    _progress: SearchProgress | None = field(default=None, init=False)
    _has_all: bool = field(default=False, init=False)
    """The whole range was searched once."""
    problem: str = field(default="", init=False)
    """Why the last search stopped; empty if it did not."""
    was_tried: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set after the first search, whether it found anything or stopped."""
    _read: tuple[tuple[str, int, int], ...] | None = field(default=None, init=False)
    """The files that were searched, as they were then."""

    def notices(self) -> tuple[str, ...]:
        """Say how far it is, and what it could not see."""
        progress = self._progress
        found = counted(progress.answers, "answer") if progress else "nothing"
        under_way = f"The search for answers is under way: {found} so far. Reload the page for more"
        stopped = f"The search stopped: {self.problem}. It is tried again" if self.problem else ""
        state = stopped or ("" if self._has_all else under_way)
        missing = progress.notices if progress else ()
        return tuple(f"{sentence.rstrip('.')}." for sentence in (state, *missing) if sentence)

    async def run(self, index: OwnIndex) -> None:
        """Search until cancelled."""
        begin_ns = self.since_ns
        while True:
            until_ns = self.clock.now_ns()
            try:
                if await asyncio.to_thread(self._has_changed):
                    await self._search(index, since_ns=begin_ns, until_ns=until_ns)
                self.problem = ""
                if parse_address(self.address).kind in BACK_ENDS:
                    begin_ns = max(self.since_ns, until_ns - _OVERLAP_NS)
            except RagtraceError as exc:
                self._failed(str(exc))
            except Exception as exc:  # noqa: BLE001 -- the page goes on; the exception may quote an answer
                self._failed(f"something went wrong inside ragtrace ({place_of(exc)})")
            if (task := asyncio.current_task()) and task.cancelling():  # a failure took its place
                raise asyncio.CancelledError
            self.was_tried.set()
            await asyncio.sleep(self.pause_s)

    def _failed(self, why: str) -> None:
        self._read, self.problem = None, why
        log.warning("the search stopped: %s", why, extra=event("search_failed"))

    async def _search(self, index: OwnIndex, *, since_ns: int, until_ns: int) -> None:
        sessions: list[SessionSummary] = []
        answers = find_answers(
            self.address,
            since_ns=since_ns,
            until_ns=until_ns,
            service=self.service,
            access=self.access,
            on_progress=self._note,
            on_session=sessions.append,
            rules=self.rules,
        )
        batch: list[AnswerSummary] = []
        async with aclosing(cast("AsyncGenerator[AnswerSummary, None]", answers)) as found:
            async for answer in found:
                batch.append(answer)
                if len(batch) >= _AT_ONCE:
                    await index.add(batch)
                    await index.add_sessions(sessions)
                    batch, sessions[:] = [], []
        await index.add(batch)
        await index.add_sessions(sessions)
        self._has_all = True

    def _note(self, progress: SearchProgress) -> None:
        self._progress = progress
        if not self._has_all:
            self.on_progress(progress)

    def _has_changed(self) -> bool:
        """Say whether there may be something new: files are read whole, so only if they changed."""
        place = parse_address(self.address)
        if place.kind in BACK_ENDS:
            return True
        path = Path(place.rest)
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        now = tuple(
            (str(file), found.st_size, found.st_mtime_ns) for file in files for found in [file.stat()]
        )
        is_new, self._read = now != self._read, now
        return is_new


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
        links=ui.links,
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
