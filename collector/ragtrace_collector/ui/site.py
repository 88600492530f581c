"""What all pages are made of: what they read and write, who looks at them, templates, and error pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ragtrace import __version__
from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import AnswerGone, AnswerSource
from ragtrace.answers.shown import FILTERS
from ragtrace.errors import InputError, ReadError, WriteError
from ragtrace.ports import Clock
from ragtrace.reviews.file import ReviewFile

if TYPE_CHECKING:
    from jinja2 import Environment


CollectorStatus = Callable[[str | None], Awaitable[Mapping[str, object]]]
"""Returns the collector's ledger, budget and health, as ``/status`` does; a tenant sees only its own part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLink:
    """A link to a trace in another page, such as Jaeger's."""

    name: str
    """``Jaeger``, ``Tempo``, ``Grafana``, …"""
    template: str
    """A URL with ``{trace_id}`` and, if it can, ``{span_id}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Everything that the pages use."""

    index: AnswerIndex
    source: AnswerSource
    reviews: ReviewFile | None
    """``None`` shows everything and reviews nothing."""
    clock: Clock
    status: CollectorStatus | None = None
    """``None`` without a collector."""
    links: tuple[TraceLink, ...] = ()
    notices: Callable[[], Sequence[str]] = tuple
    """Sentences about what the index does not have (yet)."""
    review_sinks: tuple[str, ...] = ()
    """Names of the sinks that get a span for each review."""
    review_content: bool = True
    """Whether such a span has the claim and the note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who looks at the page."""

    name: str = ""
    tenant: str | None = None
    """``None`` sees all tenants."""
    may_review: bool = True
    csrf: str = ""
    """Goes into every form as ``csrf``."""


def site_of(request: Request) -> Site:
    """Return what the pages use."""
    site: Site = request.app.state.site
    return site


def viewer_of(request: Request) -> Viewer:
    """Return who looks; set by the middleware before any page runs."""
    viewer: Viewer = request.state.viewer
    return viewer


def render(request: Request, template: str, *, status_code: int = 200, **values: object) -> HTMLResponse:
    """Render a page; the template also gets ``request``, ``site`` and ``viewer``."""
    text = (
        environment()
        .get_template(template)
        .render(request=request, site=site_of(request), viewer=viewer_of(request), **values)
    )
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status_code)


@cache
def environment() -> Environment:
    """Return the templates' environment: undefined names raise, values are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("ragtrace_collector.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    made.globals["ragtrace_version"] = __version__
    return made


_TITLES: Final[Mapping[int, str]] = {
    400: "This request is not valid",
    401: "Log in again",
    403: "Not allowed",
    404: "Not here",
    405: "Not here",
    410: "Gone",
    413: "Too large",
    421: "Unknown host name",
    429: "Too many attempts",
    503: "Cannot be read now",
    507: "Cannot be kept now",
}
_SENTENCES: Final[Mapping[int, str]] = {
    404: "there is no such page, or no such answer that you may see.",
    405: "this address does not accept such a request.",
    413: "what was sent is larger than this page takes.",
    500: "something went wrong inside ragtrace: the log says where.",
}


def error_page(request: Request, status: int, sentence: str = "") -> Response:
    """Return an error page."""
    return render(
        request,
        "error.html",
        status_code=status,
        page="",
        heading=_TITLES.get(status, "Something went wrong"),
        sentence=_capitalized(sentence or _SENTENCES.get(status, "this did not work.")),
        can_retry=status in (503, 507, 429),
    )


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


async def _http(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    own = exc.detail if exc.status_code in (403, 429) and " " in exc.detail else ""
    return error_page(request, exc.status_code, own)


def _told(status: int) -> Callable[[Request, Exception], Any]:
    async def handle(request: Request, exc: Exception) -> Response:
        return error_page(request, status, str(exc))

    return handle


HANDLERS: Final[Mapping[Any, Callable[[Request, Exception], Any]]] = {
    HTTPException: _http,
    AnswerGone: _told(410),
    ReadError: _told(503),
    WriteError: _told(507),
    InputError: _told(400),
}
