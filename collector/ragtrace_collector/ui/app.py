"""The application of the pages."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ragtrace_collector.ui.answer import answer_routes
from ragtrace_collector.ui.answers import answers_routes
from ragtrace_collector.ui.conversations import conversation_routes
from ragtrace_collector.ui.errors import HANDLERS
from ragtrace_collector.ui.login import login_routes
from ragtrace_collector.ui.overview import overview_routes
from ragtrace_collector.ui.review import review_routes
from ragtrace_collector.ui.security import Gate, UiAccess
from ragtrace_collector.ui.site import Site


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
