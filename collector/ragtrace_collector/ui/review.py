"""The review pages: which answer a person is asked about next, and what the person says, claim by claim."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import (
    AnswerFilter,
    AnswerGone,
    MetricTrend,
    OpenedAnswer,
    SortBy,
    TrafficScope,
)
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import ReadError, WriteError
from ragtrace.model import CLAIM_LABELS, Label, VerdictLabel
from ragtrace.reviews import (
    LEAST,
    METRIC,
    CorrectedMean,
    Review,
    ReviewAgreement,
    ReviewFile,
    ReviewPick,
    corrected_mean,
    random_prefix,
    review_span,
)
from ragtrace.traces.otlp import encode
from ragtrace_collector.ui._answer_view import AnswerView, ClaimLine, VersionChoice
from ragtrace_collector.ui.answer import answer_url
from ragtrace_collector.ui.security import checked_form, open_own, own_tenant
from ragtrace_collector.ui.site import Site, check_parameters, read_query, render, site_of, viewer_of

_AT_ONCE: Final = 500
_MOST_SEEN: Final = 20_000
_RANDOM_AT_ONCE: Final = 100
_MOST_RANDOM: Final = 5_000


async def next_answer(
    index: AnswerIndex, chosen: AnswerFilter, sort: SortBy, pick: ReviewPick, done: Collection[AnswerKey]
) -> AnswerSummary | None:
    """Return the next answer with claims that nobody has reviewed; ``None`` if the queue is empty."""
    if pick is ReviewPick.RANDOM:
        async for _, answer in random_answers(index, chosen.scope):
            if answer.key not in done:
                return answer
        return None
    after, seen = None, 0
    while seen < _MOST_SEEN:
        page = await index.page(chosen, sort=sort, after=after, limit=_AT_ONCE)
        for answer in page.answers:
            if answer.claims.total and answer.key not in done:
                return answer
        after, seen = page.next, seen + _AT_ONCE
        if after is None:
            return None
    return None


async def random_answers(
    index: AnswerIndex, scope: TrafficScope
) -> AsyncIterator[tuple[float, AnswerSummary]]:
    """Yield answers with a decided outcome in random order, a few thousand at most."""
    after, seen = -1.0, 0
    while seen < _MOST_RANDOM:
        part = await index.random_order(scope, after=after, limit=_RANDOM_AT_ONCE)
        for position, answer in part:
            if answer.label in (Label.PASS, Label.FAIL) and answer.claims.total:
                yield position, answer
        if len(part) < _RANDOM_AT_ONCE:
            return
        after, seen = part[-1][0], seen + len(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedMetric:
    """Faithfulness as people correct it."""

    passing: CorrectedMean | None = None
    """The share that passes; ``None`` with too few answers."""
    mean: CorrectedMean | None = None
    sample: int = 0
    """Answers of the random sample that count."""


async def corrected_metric(
    index: AnswerIndex, scope: TrafficScope, reviews: ReviewFile, trend: MetricTrend
) -> CorrectedMetric:
    """Correct the whole of a trend of the scope by the reviews of its random answers."""
    reviewed = await reviews.reviewed(tenant=scope.tenant)
    if not any(map(at_random, reviewed.values())):
        return CorrectedMetric()
    gone = await reviews.passed_over(tenant=scope.tenant)
    in_order = []
    async for position, answer in random_answers(index, scope):
        in_order.append((position, answer))
        if answer.key not in gone and not at_random(reviewed.get(answer.key, ())):
            break
    passing, scores = (random_prefix(in_order, reviewed, gone=gone, scores=which) for which in (False, True))
    whole = trend.whole
    return CorrectedMetric(
        passing=corrected_mean(whole.passing, passing) if whole.passing else None,
        mean=corrected_mean(whole.mean, scores) if whole.mean else None,
        sample=len(passing),
    )


def at_random(reviews: Sequence[Review]) -> bool:
    """Whether somebody was asked about the answer at random."""
    return any(review.picked is ReviewPick.RANDOM for review in reviews)


_PARAMETERS: Final = ("queue", "list", "skipped", "saved", "empty", "tenant")
_MOST_NOTE: Final = 2_000
_MOST_SKIPPED: Final = 50
_MOST_GONE: Final = 20
_MOST_LIST: Final = 4_000
_PERIOD_NS: Final = 30 * 86_400 * 1_000_000_000
_QUEUES: Final = (ReviewPick.UNCERTAIN, ReviewPick.RANDOM)


def review_routes() -> list[Route]:
    """Return the routes ``review``, ``review_next``, ``review_answer``, ``review_save`` and others."""
    return [
        Route("/review", show_queue, methods=["GET"], name="review"),
        Route("/review/next", go_to_next, methods=["GET"], name="review_next"),
        Route("/review/labels.jsonl", send_labels, methods=["GET"], name="review_labels"),
        Route("/review/undo", undo, methods=["POST"], name="review_undo"),
        Route("/review/{trace_id}/{span_id}", show_answer, methods=["GET"], name="review_answer"),
        Route("/review/{trace_id}/{span_id}", save, methods=["POST"], name="review_save"),
    ]


async def show_queue(request: Request) -> Response:
    """Show the queues, and what the reviews add up to."""
    check_parameters(request, *_PARAMETERS)
    reviews = _reviews(request)
    tenant = own_tenant(request, request.query_params.get("tenant"))
    return render(
        request,
        "review_queue.html",
        page="review",
        numbers=await _numbers(site_of(request), reviews, tenant),
        labels=CLAIM_LABELS,
        least=LEAST,
        saved=_saved(request),
        undo_url=_path(request, "review_undo", None, *_kept(request)),
    )


async def go_to_next(request: Request) -> Response:
    """Lead to the next answer of a queue, or back to the queues if it is empty."""
    check_parameters(request, *_PARAMETERS)
    reviews, site = _reviews(request), site_of(request)
    pick, (chosen, sort) = _pick(request.query_params.get("queue", "")), _queue(request)
    done = {*await _done(reviews, pick, chosen.scope.tenant), *_keys_skipped(request)}
    found = await next_answer(site.index, chosen, sort, pick, done)
    for _ in range(_MOST_GONE):
        if found is None or not await _is_gone(request, found.key):
            break
        with suppress(WriteError):  # it is found gone again next time
            await reviews.pass_over(found.key)
        done.add(found.key)
        found = await next_answer(site.index, chosen, sort, pick, done)
    saved = [("saved", _saved(request))] if _saved(request) else []
    if found is None:
        said = (*saved, ("empty", pick.value), *_list(request))
        return RedirectResponse(_path(request, "review", None, *said), 303)
    passed_on = [("queue", pick.value), *saved, *_kept(request)]
    return RedirectResponse(_path(request, "review_answer", found.key, *passed_on), 303)


def _queue(request: Request) -> tuple[AnswerFilter, SortBy]:
    """Return what the queue is made of: a list of answers, or all of them."""
    typed = dict(parse_qsl(dict(_list(request)).get("list", "")))
    query = read_query(typed, now_ns=site_of(request).clock.now_ns())
    asked = query.chosen.scope.tenant or request.query_params.get("tenant")
    scope = replace(query.chosen.scope, tenant=own_tenant(request, asked))
    sort = query.sort if "sort" in query.typed else SortBy.DOUBT
    return replace(query.chosen, scope=scope), sort


async def show_answer(request: Request) -> Response:
    """Show the claims of an answer, to confirm or overrule."""
    check_parameters(request, *_PARAMETERS)
    reviews, key = _reviews(request), _key(request)
    try:
        view = await _view(request, key, reviews)
    except ReadError as exc:
        return _unreadable(request, key, exc)
    return _form(request, view)


async def save(request: Request) -> Response:
    """Keep what a person says of an answer, and go on."""
    reviews, key = _reviews(request), _key(request)
    fields = await checked_form(request)
    try:
        view = await _view(request, key, reviews, carrier=fields.get("carrier", ""))
    except ReadError as exc:
        return _unreadable(request, key, exc)
    said = tuple(_said(request, view, fields))
    if problem := _problem(fields, said, view):
        return _form(request, view, typed=fields, problem=problem, status=400)
    outbox = _outbox(site_of(request), view.opened, said)
    try:
        await reviews.add(said, record=view.opened.record, claims=len(view.claims), outbox=outbox)
    except WriteError as exc:
        return _form(request, view, typed=fields, problem=str(exc), status=507)
    saved = f"{key.trace_id}:{key.span_id}:{key.tenant}"
    if fields.get("queue") in _QUEUES:
        onward = (("queue", fields["queue"]), ("saved", saved), *_kept(request))
        return RedirectResponse(_path(request, "review_next", None, *onward), 303)
    return RedirectResponse(answer_url(request, key), 303)


async def undo(request: Request) -> Response:
    """Take back what the viewer said of an answer, and show it again."""
    reviews, fields = _reviews(request), await checked_form(request)
    key = _key_of(request, fields.get("saved", ""))
    if key is None:
        raise HTTPException(404)
    await reviews.undo(key, reviewer=viewer_of(request).name)
    queue = _pick(fields.get("queue", "")).value
    return RedirectResponse(_path(request, "review_answer", key, ("queue", queue), *_kept(request)), 303)


async def send_labels(request: Request) -> Response:
    """Send the labels of all reviewed answers, as ``ragtrace calibrate`` reads them."""
    check_parameters(request, *_PARAMETERS)
    rows = await _reviews(request).labels(tenant=own_tenant(request, request.query_params.get("tenant")))
    return Response(
        "".join(row.line for row in rows).encode("utf-8", "replace"),
        media_type="application/x-ndjson",
        headers={"content-disposition": 'attachment; filename="labels.jsonl"'},
    )


def _reviews(request: Request) -> ReviewFile:
    """Return the store of reviews.

    Raises:
        HTTPException: 403 if the viewer may not review, 404 if the page keeps no reviews.
    """
    if not viewer_of(request).may_review:
        raise HTTPException(403, "this token may not review answers: add 'review' to its `may`.")
    reviews = site_of(request).reviews
    if reviews is None:
        raise HTTPException(404)
    return reviews


def _key(request: Request) -> AnswerKey:
    tenant = own_tenant(request, request.query_params.get("tenant")) or ""
    return AnswerKey(request.path_params["trace_id"], request.path_params["span_id"], tenant)


def _key_of(request: Request, text: str) -> AnswerKey | None:
    trace_id, _, rest = text.partition(":")
    span_id, _, tenant = rest.partition(":")
    if not (trace_id and span_id):
        return None
    return AnswerKey(trace_id, span_id, own_tenant(request, tenant) or "")


async def _done(reviews: ReviewFile, pick: ReviewPick, tenant: str | None) -> Collection[AnswerKey]:
    """Return the answers that a queue leaves out; the random one asks again about those of other queues."""
    reviewed = await reviews.reviewed(tenant=tenant)
    done = [key for key, said in reviewed.items() if pick is not ReviewPick.RANDOM or at_random(said)]
    return {*done, *await reviews.passed_over(tenant=tenant)}


async def _is_gone(request: Request, key: AnswerKey) -> bool:
    with suppress(ReadError):  # the answer's page says why, and the queue waits for it
        try:
            await open_own(request, key)
        except (AnswerGone, HTTPException):
            return True
    return False


def _skipped(request: Request) -> list[tuple[str, str]]:
    return [("skipped", text) for text in request.query_params.getlist("skipped")[-_MOST_SKIPPED:]]


def _list(request: Request) -> list[tuple[str, str]]:
    """Return the filter that the queue is made of, as the list's URL has it."""
    text = request.query_params.get("list", "")
    return [("list", text)] if 0 < len(text) <= _MOST_LIST else []


def _kept(request: Request) -> list[tuple[str, str]]:
    """Return what goes from page to page of a queue."""
    return [*_list(request), *_skipped(request)]


def _keys_skipped(request: Request) -> Iterator[AnswerKey]:
    for _, text in _skipped(request):
        if found := _key_of(request, text):
            yield found


def _saved(request: Request) -> str:
    saved = request.query_params.get("saved", "")
    return saved if _key_of(request, saved) else ""


def _pick(text: str) -> ReviewPick:
    return ReviewPick(text) if text in _QUEUES else ReviewPick.UNCERTAIN


def _path(request: Request, name: str, key: AnswerKey | None, *query: tuple[str, str]) -> str:
    """Return where something is done, of an answer if there is a key."""
    ids = {} if key is None else {"trace_id": key.trace_id, "span_id": key.span_id}
    tenant = [("tenant", key.tenant)] if key and key.tenant else []
    path, text = request.url_for(name, **ids).path, urlencode([*tenant, *query])
    return f"{path}?{text}" if text else path


def _skip_path(request: Request, key: AnswerKey, queue: str) -> str:
    skipped = ("skipped", f"{key.trace_id}:{key.span_id}:{key.tenant}")
    return _path(request, "review_next", None, ("queue", queue), *_kept(request), skipped)


async def _view(request: Request, key: AnswerKey, reviews: ReviewFile, *, carrier: str = "") -> AnswerView:
    opened = await open_own(request, key)
    chosen = [version for version in opened.versions if version.judged.carrier_span_id == carrier]
    if chosen:
        opened = replace(opened, versions=tuple(chosen))
    return AnswerView(opened, VersionChoice(), reviews=await reviews.of(key), links={})


def _form(
    request: Request,
    view: AnswerView,
    *,
    typed: Mapping[str, str] | None = None,
    problem: str = "",
    status: int = 200,
) -> Response:
    queue = request.query_params.get("queue", (typed or {}).get("queue", ""))
    return render(
        request,
        "review.html",
        status_code=status,
        page="review",
        view=view,
        labels=CLAIM_LABELS,
        typed=typed if typed is not None else _earlier(view.claims, viewer_of(request).name),
        queue=queue if queue in _QUEUES else "",
        skip_url=_skip_path(request, view.key, queue),
        save_url=_path(request, "review_save", view.key, *_kept(request)),
        undo_url=_path(request, "review_undo", None, *_kept(request)),
        problem=problem,
        saved=_saved(request),
        answer_url=answer_url,
    )


def _earlier(claims: Sequence[ClaimLine], reviewer: str) -> Mapping[str, str]:
    """Return what the person said before, as fields of the form."""
    said: dict[str, str] = {}
    for line in claims:
        mine = next((review for review in line.reviews if review.reviewer == reviewer), None)
        if mine is not None:
            said[f"label-{line.number}"] = mine.label.value
            said[f"note-{line.number}"] = mine.note
    return said


def _problem(fields: Mapping[str, str], said: Sequence[Review], view: AnswerView) -> str:
    """Say what a form lacks. A random answer counts as a whole, so a claim left out would be a guess."""
    if fields.get("queue") == ReviewPick.RANDOM and len(said) < len(view.claims):
        return "Choose a label for every claim: averages count whole answers. 'Cannot tell' is one."
    return "" if said else "Choose a label for at least one claim."


def _said(request: Request, view: AnswerView, fields: Mapping[str, str]) -> Iterator[Review]:
    """Yield the reviews of a form; the claims are those of the carrier, whatever the form says."""
    queue = fields.get("queue", "")
    for line in view.claims:
        verdict, number = line.verdict, line.number
        label = fields.get(f"label-{number}", "")
        if label not in CLAIM_LABELS:
            continue
        yield Review(
            key=view.key,
            carrier_span_id=view.version.judged.carrier_span_id or "",
            claim=verdict.claim.text,
            start=verdict.claim.start,
            end=verdict.claim.end,
            verdict=verdict.label,
            label=VerdictLabel(label),
            note=fields.get(f"note-{number}", "").strip()[:_MOST_NOTE],
            reviewer=viewer_of(request).name,
            time_ns=site_of(request).clock.now_ns(),
            picked=ReviewPick(queue) if queue in _QUEUES else ReviewPick.OPENED,
        )


def _outbox(site: Site, opened: OpenedAnswer, said: Sequence[Review]) -> Mapping[str, bytes]:
    target = opened.record.target
    if target is None or not site.review_sinks:
        return {}
    payload = encode([review_span(review, target, content=site.review_content) for review in said])
    return dict.fromkeys(site.review_sinks, payload)


def _unreadable(request: Request, key: AnswerKey, exc: ReadError) -> Response:
    queue = request.query_params.get("queue", "")
    return render(
        request,
        "review_missing.html",
        status_code=410 if isinstance(exc, AnswerGone) else 503,
        page="review",
        sentence=str(exc),
        next_url=_skip_path(request, key, queue) if queue in _QUEUES else "",
    )


async def _numbers(site: Site, reviews: ReviewFile, tenant: str | None) -> Mapping[str, object]:
    reviewed = await reviews.reviewed(tenant=tenant)
    scope = TrafficScope(tenant=tenant)
    (trend,) = await site.index.trends([METRIC], scope, period_ns=_PERIOD_NS)
    return {
        "answers": len(reviewed),
        "agreement": ReviewAgreement(reviewed.values()),
        "judged": trend.whole,  # faithfulness of everything, as the judge says
        "corrected": await corrected_metric(site.index, scope, reviews, trend),
    }
