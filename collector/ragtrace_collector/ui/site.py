"""What all pages are made of: what they read and write, who looks at them, templates, filters in URLs."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ragtrace import __version__
from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import VERDICTS, AnswerFilter, AnswerGone, AnswerSource, SortBy, TrafficScope
from ragtrace.answers.shown import FILTERS
from ragtrace.errors import InputError, ReadError, WriteError
from ragtrace.model import Label, VerdictLabel
from ragtrace.ports import Clock
from ragtrace.reviews import ReviewFile
from ragtrace.text import duration_of

if TYPE_CHECKING:
    from jinja2 import Environment

CollectorStatus = Callable[[str | None], Awaitable[Mapping[str, object]]]
"""Returns the collector's ledger, budget and health, as ``/status`` does; a tenant sees only its own part."""


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
    links: Mapping[str, str] = field(default_factory=dict)
    """Links to a trace in other pages by their names: URLs with ``{trace_id}`` and perhaps ``{span_id}``."""
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


T = TypeVar("T")

_FEEDBACK: Final = ("up", "down", "any", "none")
_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{1,32}")
_MOST_CHARS: Final = 500
_MOST_VALUES: Final = 100
FIELDS: Final = (
    *("since", "until", "metric", "min", "max", "label", "verdict", "blame", "judge", "service", "model"),
    *("prompt_version", "tenant", "session", "feedback", "trace", "text", "sort"),
)
"""The parameters of a filter, in the order in which URLs have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A filter and an order, as typed and as understood."""

    typed: Mapping[str, str]
    """The fields that are not empty."""
    chosen: AnswerFilter
    sort: SortBy
    problems: Mapping[str, str] = field(default_factory=dict)
    """Sentences by field; such a field is not part of ``chosen``."""

    def url(self, **changed: str | None) -> str:
        """Return the query string with some fields changed; ``None`` and the empty string take one out."""
        fields = {**self.typed, **changed}
        kept = [(name, value) for name in (*FIELDS, "after") if (value := fields.get(name))]
        return urlencode(kept)


def check_parameters(request: Request, *known: str) -> None:
    """See that a page is asked for nothing that it would ignore.

    Raises:
        InputError: a query parameter is not one of these.
    """
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        raise InputError(f"this page has no parameter `{unknown[:40]}`: it knows {', '.join(known)}")


class _Problem(ValueError):
    """What is typed in a field makes no sense."""


def read_query(typed: Mapping[str, str], *, now_ns: int) -> ListQuery:
    """Read a filter; what makes no sense is told by field and left out."""
    given = {name: value for name in FIELDS if (value := typed.get(name, "").strip())}
    problems: dict[str, str] = {}

    def of(name: str, parse: Callable[[str], T]) -> T | None:
        try:
            return parse(given[name]) if name in given else None
        except _Problem as exc:
            problems[name] = str(exc)
            return None

    def text(name: str) -> str | None:
        return of(name, _bounded)

    scope = TrafficScope(
        tenant=text("tenant"),
        since_ns=of("since", lambda typed: _time(typed, now_ns)),
        until_ns=of("until", lambda typed: _time(typed, now_ns)),
        service=text("service"),
        model=text("model"),
        prompt_version=text("prompt_version"),
    )
    chosen = AnswerFilter(
        scope=scope,
        metric=text("metric"),
        min_score=of("min", _score),
        max_score=of("max", _score),
        label=of("label", _one_of(Label)),
        verdict=of("verdict", _one_of(VerdictLabel, VERDICTS)),
        blame=text("blame"),
        judge=text("judge"),
        session=text("session"),
        feedback=of("feedback", _feedback),
        trace_id=of("trace", _trace_id),
        text=text("text"),
    )
    sort = of("sort", _one_of(SortBy)) or SortBy.NEWEST
    if scope.since_ns is not None and scope.until_ns is not None and scope.since_ns >= scope.until_ns:
        problems["until"] = "This is not after the begin: no answer can be between."
    if chosen.min_score is not None and chosen.max_score is not None and chosen.min_score > chosen.max_score:
        problems["max"] = "This is below the lowest score: no answer can be between."
    return ListQuery(typed=given, chosen=chosen, sort=sort, problems=problems)


def _bounded(text: str) -> str:
    if len(text) > _MOST_CHARS:
        raise _Problem(f"Use at most {_MOST_CHARS} characters.")
    return text


def _score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 1:
        raise _Problem("A score is a number from 0 to 1, such as 0.5.")
    return score


def _one_of(values: type[T], among: Sequence[T] = ()) -> Callable[[str], T]:
    known: Sequence[Any] = among or tuple(values)  # type: ignore[arg-type]

    def parse(text: str) -> T:
        if text not in known:
            raise _Problem(f"Choose one of {', '.join(known)}.")
        return values(text)  # type: ignore[call-arg]

    return parse


def _feedback(text: str) -> str:
    if text not in _FEEDBACK:
        raise _Problem(f"Choose one of {', '.join(_FEEDBACK)}.")
    return text


def _trace_id(text: str) -> str:
    if not _TRACE_ID.fullmatch(text):
        raise _Problem("A trace id has up to 32 hex digits; its first digits are enough.")
    return text.lower()


def _time(text: str, now_ns: int) -> int:
    """Read ``24h`` as so long ago, else a date or time; without a zone it is UTC."""
    try:
        ago = duration_of(text)
        if ago is not None:
            return now_ns - int(ago.total_seconds() * 1e9)
        moment = datetime.fromisoformat(text)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise _Problem("Write 24h or 7d for so long ago, or a time such as 2026-05-01T10:00 (UTC).") from None
    return int(seconds * 1e9)


async def values_of(index: AnswerIndex, scope: TrafficScope, *dimensions: str) -> Mapping[str, Sequence[str]]:
    """Return what a form offers of dimensions: the most frequent values of each."""
    return {name: tuple(await index.values(name, scope, limit=_MOST_VALUES)) for name in dimensions}
