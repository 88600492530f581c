"""The application of the pages."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ragtrace_collector.ui.answer import answer_routes
from ragtrace_collector.ui.answers import answers_routes
from ragtrace_collector.ui.errors import HANDLERS
from ragtrace_collector.ui.login import login_routes
from ragtrace_collector.ui.security import Gate, UiAccess
from ragtrace_collector.ui.site import Site


def ui_app(site: Site, *, access: UiAccess) -> Starlette:
    """Build the application. Each page's module adds its routes here, by name: ``overview``, …"""
    app = Starlette(
        routes=[
            Route("/", _to_answers, methods=["GET"], name="overview"),
            *answers_routes(),
            *answer_routes(),
            *login_routes(access),
            Mount("/static", StaticFiles(packages=[("ragtrace_collector.ui", "static")]), name="static"),
        ],
        middleware=[Middleware(Gate, access=access)],
        exception_handlers=HANDLERS,
    )
    app.state.site = site
    return app


async def _to_answers(request: Request) -> Response:
    return RedirectResponse(request.url_for("answers").path, 303)
