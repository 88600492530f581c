"""The application of the pages."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ragtrace_collector.ui.site import Site


def ui_app(site: Site) -> Starlette:
    """Build the application. Each page's module adds its routes here, by name: ``overview``, …"""
    app = Starlette(
        routes=[
            Mount("/static", StaticFiles(packages=[("ragtrace_collector.ui", "static")]), name="static"),
        ]
    )
    app.state.site = site
    return app
