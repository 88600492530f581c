"""The list of judged answers: filter, order, pages, words to look for, and exports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import (
    VERDICTS,
    AnswerFilter,
    AnswerGone,
    AnswerPage,
    OpenedAnswer,
    SortBy,
    TrafficScope,
)
from ragtrace.answers.summary import FACTS, AnswerKey, AnswerSummary, metrics_of, row_of
from ragtrace.errors import InputError, ReadError
from ragtrace.model import Label
from ragtrace.reviews import LabelRow, RecordRows, record_row
from ragtrace.text import escaped_json, spreadsheet_line
from ragtrace_collector.ui.security import open_own, own_tenant, scoped
from ragtrace_collector.ui.site import (
    FIELDS,
    ListQuery,
    Site,
    check_parameters,
    read_query,
    render,
    site_of,
    values_of,
)

_COLUMNS: Final = (*FACTS[:9], "question", *FACTS[9:])


class ExportFormat(NamedTuple):
    """How rows are written, with the names of the metrics, one or two columns each.

    A list that was searched for words has the column ``search``: ``found``, or why nobody knows.
    """

    media_type: str
    head: Callable[[Sequence[str], bool], bytes]
    """What comes before the rows; the flag says whether the list was searched."""
    row: Callable[[AnswerSummary, Sequence[str], str | None], bytes]


def _json_row(answer: AnswerSummary, metrics: Sequence[str], search: str | None) -> bytes:
    row = {
        **row_of(answer),
        "disputed": answer.is_disputed,
        **({} if search is None else {"search": search}),
        "metrics": metrics_of(answer),
    }
    return (escaped_json(json.dumps(row, ensure_ascii=False)) + "\n").encode("utf-8", "replace")


def _csv_head(metrics: Sequence[str], is_searched: bool) -> bytes:
    names = [f"{what}_{name}" for name in metrics for what in ("score", "label")]
    last = [*names, *(["search"] if is_searched else [])]
    return "\ufeff".encode() + spreadsheet_line([*_COLUMNS, "disputed", *last])


def _csv_row(answer: AnswerSummary, metrics: Sequence[str], search: str | None) -> bytes:
    facts = row_of(answer)
    cells = [*(facts[name] for name in _COLUMNS), "true" if answer.is_disputed else "false"]
    for name in metrics:
        metric = answer.metric(name)
        cells += [metric.score, metric.label.value] if metric else [None, None]
    return spreadsheet_line([*cells, *([] if search is None else [search])])


FORMATS: Final[Mapping[str, ExportFormat]] = {
    "jsonl": ExportFormat("application/x-ndjson", lambda metrics, is_searched: b"", _json_row),
    "csv": ExportFormat("text/csv; charset=utf-8", _csv_head, _csv_row),
}


OpenOwn = Callable[[AnswerKey], Awaitable[OpenedAnswer]]
"""Opens an answer for a viewer."""

_BATCH: Final = 20
_MOST_OPENED: Final = 200
_MOST_S: Final = 2.0
_MOST_OPENING_S: Final = 5.0


class SearchResult(StrEnum):
    """What a look at the words of an answer gave."""

    FOUND = "found"
    OTHER_WORDS = "other words"
    GONE = "gone"
    """Its content is nowhere any more, so nobody knows."""
    UNREADABLE = "unreadable"
    """Its content could not be read now."""


class TextSearch:
    """One search. It opens a bounded number of answers a page, and says how far it looked."""

    def __init__(
        self, site: Site, open_own: OpenOwn, *, most_opened: int = _MOST_OPENED, most_s: float = _MOST_S
    ) -> None:
        self._site = site
        self._open_own = open_own
        self._most_opened = most_opened
        self._most_s = most_s
        self.opened = 0
        """Number of answers that were looked at."""
        self.gone = 0
        """How many of them have no content any more."""
        self.unread = 0
        """How many of them could not be read."""
        self.problem = ""
        """Why the last of them could not be read."""

    async def page(self, chosen: AnswerFilter, *, sort: SortBy, after: str | None, limit: int) -> AnswerPage:
        """Return a page of answers with these words; cut if the bound was reached first."""
        begun, found, cursor = time.monotonic(), list[AnswerSummary](), after
        without_text = replace(chosen, text=None)
        while True:
            part = await self._site.index.page(without_text, sort=sort, after=cursor, limit=_BATCH)
            looked = await self.looked_at(part.answers, chosen.text or "")
            found += [answer for answer, result in looked if result is SearchResult.FOUND]
            cursor = part.next
            if cursor is None:
                return AnswerPage(answers=tuple(found), next=None)
            is_spent = self.opened >= self._most_opened or time.monotonic() - begun > self._most_s
            if len(found) >= limit or is_spent:
                last = part.answers[-1].time_ns if part.answers else part.searched_to_ns
                return AnswerPage(
                    answers=tuple(found), next=cursor, is_cut=len(found) < limit, searched_to_ns=last
                )

    async def looked_at(
        self, answers: Sequence[AnswerSummary], text: str
    ) -> list[tuple[AnswerSummary, SearchResult]]:
        """Return each answer with what a look at its words gave."""
        found = await asyncio.gather(*(self._look(answer, text) for answer in answers))
        return list(zip(answers, found, strict=True))

    async def _look(self, answer: AnswerSummary, text: str) -> SearchResult:
        self.opened += 1
        try:
            async with asyncio.timeout(_MOST_OPENING_S):
                record = (await self._open_own(answer.key)).record
        except (AnswerGone, HTTPException):
            self.gone += 1
            return SearchResult.GONE
        except (ReadError, TimeoutError) as exc:
            self.unread += 1
            self.problem = str(exc) or f"{self._site.source.name} did not answer in time"
            return SearchResult.UNREADABLE
        has_all = has_words(record.question, record.answer, text)
        return SearchResult.FOUND if has_all else SearchResult.OTHER_WORDS


def has_words(question: str | None, answer: str | None, text: str) -> bool:
    """Return whether a question or its answer has each word of a text, in whatever case."""
    content = f"{question or ''}\n{answer or ''}".casefold()
    return all(word in content for word in text.casefold().split())


class RecordExport:
    """Makes records of judged answers: with people's labels if there are any, else as the place has them."""

    def __init__(self, open_answer: OpenOwn, reviewed: Mapping[AnswerKey, LabelRow]) -> None:
        self._open = open_answer
        self._reviewed = reviewed
        self.records = RecordRows()
        self.left_out = 0
        """Answers whose texts are not there."""
        self.problem = ""
        """Why the last of them is left out."""

    async def add(self, answers: Mapping[AnswerKey, float | None], *, text: str = "") -> None:
        """Add answers with all these words, each with the probability with which it was drawn."""
        keys = sorted(answers, key=lambda key: key not in self._reviewed)
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            for key, row in zip(some, await asyncio.gather(*map(self._row, some)), strict=True):
                if row is None:
                    self.left_out += 1
                elif has_words(row["question"], row["answer"], text):
                    self.records.add(row, answers[key])

    async def _row(self, key: AnswerKey) -> Mapping[str, Any] | None:
        if label := self._reviewed.get(key):
            return label.row
        try:
            async with asyncio.timeout(_MOST_OPENING_S):
                row = record_row((await self._open(key)).record)
        except (ReadError, HTTPException, TimeoutError) as exc:
            self.problem = str(exc) or "the place did not answer in time"
            return None
        self.problem = self.problem or "" if row else "its spans have no texts: content is off"
        return row


_PAGE: Final = 50
_AT_ONCE: Final = 20
_RECORDS: Final = "records"
_MOST_RECORDS: Final = 1_000


def answers_routes() -> list[Route]:
    """Return the routes ``answers`` and ``answers_export``."""
    return [
        Route("/answers", show_answers, methods=["GET"], name="answers"),
        Route("/answers.{format}", export_answers, methods=["GET"], name="answers_export"),
    ]


async def show_answers(request: Request) -> Response:
    """Show one page of the list. A filter that makes no sense is told beside its field."""
    check_parameters(request, *FIELDS, "after")
    site = site_of(request)
    query = _query(request)
    page = AnswerPage(answers=(), next=None)
    search = None
    if not query.problems:
        search = TextSearch(site, partial(open_own, request)) if query.chosen.text else None
        find = search.page if search else site.index.page
        page = await find(query.chosen, sort=query.sort, after=request.query_params.get("after"), limit=_PAGE)
    return render(
        request,
        "answers.html",
        status_code=400 if query.problems else 200,
        page="answers",
        query=query,
        found=page,
        search=search,
        choices=await _choices(site.index, TrafficScope(tenant=query.chosen.scope.tenant)),
        reviewed=await _reviewed(request, page.answers),
        shown_metrics=_metrics_of(page.answers, query.chosen.metric),
    )


async def export_answers(request: Request) -> Response:
    """Stream all answers of a filter, as JSON lines or CSV; or send them as records, with their texts."""
    check_parameters(request, *FIELDS)
    suffix = request.path_params["format"]
    export = FORMATS.get(suffix)
    query = _query(request)
    if export is None and suffix != _RECORDS:
        raise HTTPException(404)
    if query.problems:
        return _to_list(request, query)
    if export is None:
        return await _records(request, query)
    site = site_of(request)
    return StreamingResponse(
        _exported(request, query, export, metrics=await site.index.metrics(query.chosen.scope)),
        media_type=export.media_type,
        headers={"content-disposition": f'attachment; filename="answers.{suffix}"'},
    )


async def _records(request: Request, query: ListQuery) -> Response:
    """Send records that `ragtrace evaluate` reads; the file's name says if texts were not there.

    Raises:
        InputError: there are more than a page should open.
        AnswerGone: there are answers, and the texts of none.
    """
    site, found = site_of(request), dict[AnswerKey, float | None]()
    async for answer in site.index.every(query.chosen, sort=query.sort):
        found[answer.key] = answer.probability
        if len(found) > _MOST_RECORDS:
            raise InputError(
                f"this filter has more than {_MOST_RECORDS:,} answers: narrow it, or use `ragtrace"
                " export-records`"
            )
    labels = await site.reviews.labels(tenant=own_tenant(request, None)) if site.reviews else ()
    made = RecordExport(partial(open_own, request), {row.key: row for row in labels})
    await made.add(found, text=query.chosen.text or "")
    if made.left_out and not made.records.rows:
        raise AnswerGone(f"the texts of these answers are not there: {made.problem}")
    number, left_out = len(made.records.rows), made.left_out
    name = f"records-{number}-of-{number + left_out}" if left_out else "records"
    return Response(
        "".join(made.records.lines()).encode("utf-8", "replace"),
        media_type=FORMATS["jsonl"].media_type,
        headers={"content-disposition": f'attachment; filename="{name}.jsonl"'},
    )


def _to_list(request: Request, query: ListQuery) -> Response:
    return RedirectResponse(f"{request.url_for('answers').path}?{query.url()}", 303)


def _query(request: Request) -> ListQuery:
    query = read_query(request.query_params, now_ns=site_of(request).clock.now_ns())
    chosen = replace(query.chosen, scope=scoped(request, query.chosen.scope))
    return replace(query, chosen=chosen)


async def _exported(
    request: Request, query: ListQuery, export: ExportFormat, *, metrics: Sequence[str]
) -> AsyncIterator[bytes]:
    yield export.head(metrics, bool(query.chosen.text))
    waiting: list[AnswerSummary] = []
    async for answer in site_of(request).index.every(query.chosen, sort=query.sort):
        waiting.append(answer)
        if len(waiting) == _AT_ONCE:
            yield await _rows(request, waiting, query, export, metrics)
            waiting = []
    yield await _rows(request, waiting, query, export, metrics)


async def _rows(
    request: Request,
    answers: Sequence[AnswerSummary],
    query: ListQuery,
    export: ExportFormat,
    metrics: Sequence[str],
) -> bytes:
    """Return the rows of answers; with words to look for, also of those whose words nobody could read."""
    if not query.chosen.text:
        return b"".join(export.row(answer, metrics, None) for answer in answers)
    looked = await TextSearch(site_of(request), partial(open_own, request)).looked_at(
        answers, query.chosen.text
    )
    kept = [(answer, found) for answer, found in looked if found is not SearchResult.OTHER_WORDS]
    return b"".join(export.row(answer, metrics, found.value) for answer, found in kept)


async def _choices(index: AnswerIndex, scope: TrafficScope) -> Mapping[str, Sequence[str]]:
    """Return what the filter form offers."""
    return {
        **await values_of(index, scope, "service", "model", "prompt_version", "tenant", "blame"),
        "metric": await index.metrics(scope),
        "label": [label.value for label in Label],
        "verdict": [label.value for label in VERDICTS],
        "sort": [sort.value for sort in SortBy],
    }


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
