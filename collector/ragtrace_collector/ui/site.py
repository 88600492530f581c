"""What the pages are made of: the ports that they read and write, and who looks at them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from ragtrace.answers.index.reading import AnswerIndex
from ragtrace.answers.opened import AnswerSource
from ragtrace.ports import Clock
from ragtrace.reviews.file import ReviewFile

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
