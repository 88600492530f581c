"""The list of pages, shown at the root path."""

from __future__ import annotations

from html import escape
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response


class IndexEntry(NamedTuple):
    """A page and its description."""

    path: str
    says: str
    is_a_link: bool = True
    """Whether the path works as written."""


PAGES: Final = (
    IndexEntry("/livez", "the event loop turns (for a liveness probe)"),
    IndexEntry("/readyz", "whether spans are accepted, or why not (for a readiness probe)"),
    IndexEntry("/metrics", "metrics, as Prometheus or OpenMetrics text"),
    IndexEntry("/status", "the collector's state, as JSON"),
    IndexEntry("/ledger", "all answers by state, as JSON"),
    IndexEntry("/why/TRACE_ID", "why an answer has a score or has none, as JSON", is_a_link=False),
)


async def show_index(request: Request) -> Response:
    """Return the list: HTML for a browser, plain text otherwise. It contains nothing about answers."""
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_html())
    return PlainTextResponse("".join(f"{page.path:<16}{page.says}\n" for page in PAGES))


def _html() -> str:
    rows = "\n".join(f"<tr><td>{_named(page)}</td><td>{escape(page.says)}</td></tr>" for page in PAGES)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>ragtrace collector</title>\n'
        f"<h1>ragtrace collector</h1>\n<table>\n{rows}\n</table>\n</html>\n"
    )


def _named(page: IndexEntry) -> str:
    path = escape(page.path)
    return f'<a href=".{path}">{path}</a>' if page.is_a_link else path
