"""The page of one answer: its claims beside their evidence, and everything around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragtrace.answers.port import AnswerDamaged, AnswerGone
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import RagtraceError, ReadError, ReadUnavailable
from ragtrace_collector.ui._answer_view import (
    AnswerView,
    VersionChoice,
    headline,
    place_links,
    raw_carrier,
)
from ragtrace_collector.ui.conversations import session_url
from ragtrace_collector.ui.security import open_own, own_tenant
from ragtrace_collector.ui.site import Site, check_parameters, render, site_of, viewer_of

_MOST_OF_SESSION: Final = 100
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")


def answer_routes() -> list[Route]:
    """Return the routes of one answer: its page, and its carrier as JSON."""
    return [
        Route("/answers/{trace_id}/{span_id}", _answer, name="answer"),
        Route("/answers/{trace_id}/{span_id}/carrier.json", _answer_raw, name="answer_raw"),
    ]


def answer_url(request: Request, key: AnswerKey, **query: object) -> str:
    """Return the path of an answer's page."""
    return _url(request, "answer", key, query)


def raw_url(request: Request, key: AnswerKey, **query: object) -> str:
    """Return the path of an answer's carrier as JSON."""
    return _url(request, "answer_raw", key, query)


def _url(request: Request, name: str, key: AnswerKey, query: dict[str, object]) -> str:
    path = request.url_for(name, trace_id=key.trace_id, span_id=key.span_id).path
    given = {**({"tenant": key.tenant} if key.tenant else {}), **query}
    return f"{path}?{urlencode(given)}" if given else path


def _review_url(request: Request, key: AnswerKey) -> str:
    """Return where this viewer reviews the answer; empty if that is not for this viewer."""
    may_review = viewer_of(request).may_review and site_of(request).reviews is not None
    return _url(request, "review_answer", key, {}) if may_review else ""


async def _answer(request: Request) -> Response:
    key, site = _asked_key(request), site_of(request)
    try:
        opened = await open_own(request, key)
    except ReadError as exc:
        return await _not_opened(request, key, exc)
    reviews = await site.reviews.of(key) if site.reviews else ()
    view = AnswerView(opened, _choice(request), reviews=reviews, links=site.links)
    session = await _session(site, view)
    return render(
        request,
        "answer.html",
        page="answers",
        view=view,
        session=session,
        session_is_cut=len(session) >= _MOST_OF_SESSION,
        notices=view.notices,
        review_url=_review_url(request, key),
        answer_url=answer_url,
        raw_url=raw_url,
        session_url=session_url,
    )


async def _answer_raw(request: Request) -> Response:
    key = _asked_key(request)
    try:
        opened = await open_own(request, key)
    except AnswerGone:
        raise HTTPException(404) from None
    except ReadError:
        raise HTTPException(503, "The place that holds this answer cannot be read now: try again") from None
    view = AnswerView(opened, _choice(request), reviews=(), links={})
    text = raw_carrier(view.version.carrier)
    if not text:
        raise HTTPException(404)
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


def _asked_key(request: Request) -> AnswerKey:
    """Return which answer is asked for; of another tenant there is none, and nothing is said about it."""
    check_parameters(request, "tenant", "version", "from", "to")
    trace_id, span_id = request.path_params["trace_id"], request.path_params["span_id"]
    if not _TRACE_ID.fullmatch(trace_id) or not _SPAN_ID.fullmatch(span_id):
        raise HTTPException(404)
    return AnswerKey(trace_id, span_id, own_tenant(request, request.query_params.get("tenant")) or "")


def _choice(request: Request) -> VersionChoice:
    def number(name: str) -> int | None:
        text = request.query_params.get(name, "")
        return int(text) if _NUMBER.fullmatch(text) else None

    named = request.query_params.get("version", "")
    shown = named if _SPAN_ID.fullmatch(named) else number("version")
    return VersionChoice(shown=shown, before=number("from"), after=number("to"))


async def _session(site: Site, view: AnswerView) -> Sequence[AnswerSummary]:
    if not view.session:
        return ()
    tenant = view.key.tenant or None
    found = await site.index.session(view.session, tenant=tenant, limit=_MOST_OF_SESSION)
    return [summary for summary in found if summary.key.tenant == view.key.tenant]


async def _not_opened(request: Request, key: AnswerKey, exc: ReadError) -> Response:
    """Show what the index still knows of an answer whose content cannot be read."""
    site = site_of(request)
    try:
        known: Sequence[AnswerSummary] = await site.index.versions(key)
    except RagtraceError:
        known = ()
    is_gone = isinstance(exc, AnswerGone)
    return render(
        request,
        "answer_missing.html",
        status_code=(410 if known else 404) if is_gone else 503,
        page="answers",
        key=key,
        known=known,
        headlines=[headline(summary) for summary in known],
        is_gone=is_gone,
        reason=str(exc),
        is_away=isinstance(exc, ReadUnavailable),
        is_damaged=isinstance(exc, AnswerDamaged),
        links=place_links(site.links, key),
        again=answer_url(request, key),
    )
