"""Make the pages from a configuration, and serve them until told to stop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from typing import Final

from starlette.applications import Starlette

from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.ui.app import ui_app
from ragtrace_collector.ui.places import AnswerPlace
from ragtrace_collector.ui.reviewing import ReviewPlace
from ragtrace_collector.ui.security import UiAccess
from ragtrace_collector.ui.session import Sessions
from ragtrace_collector.ui.site import CollectorStatus, Site, TraceLink
from ragtrace_collector.web.auth import ReceiverAuth
from ragtrace_collector.web.certificate import Certificate
from ragtrace_collector.web.server import HttpServer


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
