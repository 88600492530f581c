"""The list of judged answers: filter, order, pages, saved views, and exports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ragtrace.answers.port import AnswerIndex, AnswerPage, SortBy, TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import Diagnosis, Label, VerdictLabel
from ragtrace.reviews.review import SavedView
from ragtrace_collector.ui._export import FORMATS, ExportFormat
from ragtrace_collector.ui._text_search import TextSearch
from ragtrace_collector.ui.query import ListQuery, read_query
from ragtrace_collector.ui.render import render
from ragtrace_collector.ui.security import checked_form, own_tenant, scoped
from ragtrace_collector.ui.site import Site, site_of, viewer_of

_PAGE: Final = 50
_MOST_VALUES: Final = 100
_MOST_NAME: Final = 80


def answers_routes() -> list[Route]:
    """Return the routes ``answers``, ``answers_export``, ``view_save`` and ``view_delete``."""
    return [
        Route("/answers", show_answers, methods=["GET"], name="answers"),
        Route("/answers.{format}", export_answers, methods=["GET"], name="answers_export"),
        Route("/views", save_view, methods=["POST"], name="view_save"),
        Route("/views/delete", delete_view, methods=["POST"], name="view_delete"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choices:
    """What the filter form offers."""

    metrics: Sequence[str]
    services: Sequence[str]
    models: Sequence[str]
    prompt_versions: Sequence[str]
    tenants: Sequence[str]
    labels: Sequence[str] = tuple(label.value for label in Label)
    verdicts: Sequence[str] = tuple(label.value for label in VerdictLabel)
    blames: Sequence[str] = tuple(blame.value for blame in Diagnosis)
    sorts: Sequence[str] = tuple(sort.value for sort in SortBy)


async def show_answers(request: Request) -> Response:
    """Show one page of the list. A filter that makes no sense is told beside its field."""
    site = site_of(request)
    query = _query(request)
    page = AnswerPage(answers=(), next=None)
    search = None
    if not query.problems:
        search = TextSearch(site) if query.chosen.text else None
        find = search.page if search else site.index.page
        page = await find(query.chosen, sort=query.sort, after=request.query_params.get("after"), limit=_PAGE)
    return render(
        request,
        "answers.html",
        status_code=400 if query.problems else 200,
        page="answers",
        query=query,
        found=page,
        opened=search.opened if search else None,
        unreadable=search.unreadable if search else 0,
        choices=await _choices(site, TrafficScope(tenant=query.chosen.scope.tenant)),
        views=await _views(request),
        reviewed=await _reviewed(request, page.answers),
        shown_metrics=_metrics_of(page.answers, query.chosen.metric),
    )


async def export_answers(request: Request) -> Response:
    """Stream all answers of a filter, as JSON lines or CSV."""
    export = FORMATS.get(request.path_params["format"])
    query = _query(request)
    if export is None or query.problems:
        return RedirectResponse(f"{request.url_for('answers').path}?{query.url()}", 303)
    return StreamingResponse(
        _exported(site_of(request), query, export),
        media_type=export.media_type,
        headers={"content-disposition": f'attachment; filename="answers.{export.suffix}"'},
    )


async def save_view(request: Request) -> Response:
    """Keep a filter by a name."""
    fields = await checked_form(request)
    reviews, name = site_of(request).reviews, fields.get("name", "").strip()[:_MOST_NAME]
    query = read_query(_fields_of(fields.get("query", "")), now_ns=site_of(request).clock.now_ns())
    if reviews is not None and name:
        await reviews.save_view(SavedView(name=name, query=query.url(), tenant=viewer_of(request).tenant))
    return RedirectResponse(f"{request.url_for('answers').path}?{query.url()}", 303)


async def delete_view(request: Request) -> Response:
    """Forget a saved filter."""
    fields = await checked_form(request)
    reviews = site_of(request).reviews
    if reviews is not None:
        await reviews.delete_view(fields.get("name", ""), tenant=viewer_of(request).tenant)
    return RedirectResponse(request.url_for("answers").path, 303)


def _fields_of(query: str) -> Mapping[str, str]:
    return dict(parse_qsl(query, max_num_fields=100))


def _query(request: Request) -> ListQuery:
    query = read_query(request.query_params, now_ns=site_of(request).clock.now_ns())
    chosen = replace(query.chosen, scope=scoped(request, query.chosen.scope))
    return replace(query, chosen=chosen)


async def _exported(site: Site, query: ListQuery, export: ExportFormat) -> AsyncIterator[bytes]:
    metrics = tuple(await site.index.metrics(query.chosen.scope))
    yield export.head(metrics)
    search = TextSearch(site) if query.chosen.text else None
    async for answer in site.index.every(query.chosen, sort=query.sort):
        if search is None or await search.matches(answer, query.chosen.text or ""):
            yield export.row(answer, metrics)


async def _choices(site: Site, scope: TrafficScope) -> _Choices:
    index: AnswerIndex = site.index
    services, models, versions, tenants = [
        tuple(await index.values(dimension, scope, limit=_MOST_VALUES))
        for dimension in ("service", "model", "prompt_version", "tenant")
    ]
    return _Choices(
        metrics=await index.metrics(scope),
        services=services,
        models=models,
        prompt_versions=versions,
        tenants=tenants,
    )


async def _views(request: Request) -> Sequence[SavedView]:
    reviews = site_of(request).reviews
    return await reviews.views(tenant=own_tenant(request, None)) if reviews else ()


async def _reviewed(request: Request, answers: Sequence[AnswerSummary]) -> frozenset[AnswerKey]:
    reviews = site_of(request).reviews
    if reviews is None or not answers:
        return frozenset()
    return frozenset(await reviews.reviewed(tenant=own_tenant(request, None)))


def _metrics_of(answers: Sequence[AnswerSummary], chosen: str | None) -> Sequence[str]:
    """Return the metrics to show as columns: the chosen one, and the first few that occur."""
    occurring = dict.fromkeys(metric.name for answer in answers for metric in answer.metrics)
    first = [chosen] if chosen else []
    return tuple(dict.fromkeys([*first, *sorted(occurring, key=lambda name: name != "faithfulness")]))[:4]
