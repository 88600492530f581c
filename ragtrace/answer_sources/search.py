"""Find judged answers by searching a place for carriers: what fills an index without a collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeGuard

from ragtrace import semconv
from ragtrace.answer_sources.sources import AnswerAddress, parse_address
from ragtrace.answers.carrier import as_carrier, is_carrier, of_tenant, records_in, summary_of
from ragtrace.answers.rows import ReportLine, read_line, report_lines
from ragtrace.answers.summary import (
    AnswerSummary,
    SessionSummary,
    feedback_in,
    session_summary_of,
    short_question,
    summary_of_judged,
)
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.search_windows import windows
from ragtrace.errors import InputError, ReadError
from ragtrace.http.retry import Sleep
from ragtrace.model import Label
from ragtrace.ports import Page, TraceQuery, TraceReader, TraceSearch
from ragtrace.traces.extract import ExtractRules
from ragtrace.traces.trace import Trace

_AT_ONCE: Final = 8
"""Traces read by id at the same time."""
_MOST_FAILURES: Final = 3
"""After this many unreadable traces in a row, the place counts as failed."""
_LINES_AT_ONCE: Final = 500
_DEFAULT_RULES: Final = ExtractRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """How far a search came, and what it could not see. Nothing else was left out."""

    since_ns: int
    until_ns: int
    searched_to_ns: int
    """Everything before was searched; of a file, which has no order, all or nothing."""
    share: float = 0.0
    """How much was searched, from 0 to 1."""
    traces: int = 0
    answers: int = 0
    """Evaluations found."""
    cut_windows: int = 0
    """Moments with more traces than the back end returns at once."""
    unread: int = 0
    """Traces, or parts of files, that cannot be read."""
    first_fault: str = ""
    is_done: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences about what is missing."""
        cut = f"At times ({self.cut_windows:,}) the place has more traces than it returns: some are missing"
        unread = f"Traces or parts of files ({self.unread:,}) cannot be read, the first: {self.first_fault}"
        return (*((cut,) if self.cut_windows else ()), *((unread,) if self.unread else ()))


OnProgress = Callable[[SearchProgress], None]


OnSession = Callable[[SessionSummary], None]


async def find_answers(
    address: str,
    *,
    since_ns: int,
    until_ns: int,
    service: str | None = None,
    access: ConnectionSettings | None = None,
    on_progress: OnProgress = lambda _: None,
    on_session: OnSession = lambda _: None,
    rules: ExtractRules = _DEFAULT_RULES,
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[AnswerSummary]:
    """Yield the evaluations in a time range of a place, back ends from the oldest to the newest.

    The range is about when the carriers are in the trace, as the back end finds them; of a report, about
    when the answers were given. A superseded evaluation is yielded, too, and one may come twice.
    ``on_progress`` is called after each part of the search, at last with ``is_done``, and ``on_session`` with
    each judged session in a trace. Questions are read by the ``rules``.

    Raises:
        ConfigError: the address has another form.
        ReadError: the place could not be read (further): the progress says how far it was.
    """
    place, run = parse_address(address), _Run(since_ns, until_ns, on_progress)
    if place.kind == "report":
        async for summary in _of_report(Path(place.rest), service, run):
            yield summary
    else:
        reader = place.reader(access=access, on_fault=run.fault, sleep=sleep)
        async with aclosing(reader):
            traces = _traces(reader, place, service, run)
            async for summary in _of_traces(traces, service, run, on_session, rules):
                yield summary
    run.tell(until_ns, share=1.0, is_done=True)


async def _of_traces(
    traces: AsyncIterator[Trace], service: str | None, run: _Run, on_session: OnSession, rules: ExtractRules
) -> AsyncIterator[AnswerSummary]:
    async for trace in traces:
        for span in trace.spans:
            told = session_summary_of(span)
            if told and service in (None, span.resource.attributes.get(semconv.SERVICE_NAME)):
                on_session(told)
        for summary in await asyncio.to_thread(_in_trace, trace, rules):
            if _is_of_service(summary, service):
                run.answers += 1
                yield summary


def _in_trace(trace: Trace, rules: ExtractRules) -> list[AnswerSummary]:
    """Return the summary of each evaluation in a trace, with its question and the feedback on its answer."""
    feedback = {given.span_id: given.thumbs for given in feedback_in(trace.spans)}  # the last one counts
    read = [summary_of(as_carrier(span)) for span in trace.spans if is_carrier(span)]
    found = [summary for summary in read if summary is not None]
    tenants = {summary.key.tenant for summary in found}
    records = {tenant: records_in(of_tenant(trace, tenant)[0], rules).by_span for tenant in tenants}
    return [
        replace(
            summary,
            feedback=summary.feedback or feedback.get(summary.key.span_id, feedback.get("", "")),
            question=short_question(records[summary.key.tenant].get(summary.key.span_id)),
        )
        for summary in found
    ]


class _Run:
    """The counts of a search."""

    def __init__(self, since_ns: int, until_ns: int, on_progress: OnProgress) -> None:
        self.since_ns, self.until_ns = since_ns, until_ns
        self.traces = self.answers = self.cut_windows = self.unread = self.failed_in_a_row = 0
        self._first_fault = ""
        self._on_progress = on_progress

    def fault(self, fault: BaseException) -> None:
        """Count what cannot be read."""
        self._first_fault = self._first_fault or str(fault)
        self.unread += 1

    def tell(self, searched_to_ns: int, *, share: float | None = None, is_done: bool = False) -> None:
        """Say how far it is; the share is by default that of the time range."""
        if share is None:
            share = (searched_to_ns - self.since_ns) / max(1, self.until_ns - self.since_ns)
        self._on_progress(
            SearchProgress(
                since_ns=self.since_ns,
                until_ns=self.until_ns,
                searched_to_ns=searched_to_ns,
                share=min(1.0, max(0.0, share)),
                traces=self.traces,
                answers=self.answers,
                cut_windows=self.cut_windows,
                unread=self.unread,
                first_fault=self._first_fault,
                is_done=is_done,
            )
        )


async def _traces(
    reader: TraceReader, place: AnswerAddress, service: str | None, run: _Run
) -> AsyncIterator[Trace]:
    if not _can_search(reader):
        async for trace in _all(reader, run):
            yield trace
        return
    query = TraceQuery(since_ns=run.since_ns, until_ns=run.until_ns, service=service)
    chosen, query = _carriers_only(reader, place.kind, query)
    async for window in windows(chosen, query):
        run.cut_windows += window.is_cut
        for whole in filter(None, window.found.values()):
            run.traces += 1
            yield whole
        named = [trace_id for trace_id, found in window.found.items() if found is None]
        async for trace in _by_id(reader, named, run):
            yield trace
        run.tell(window.until_ns)


async def _all(reader: TraceReader, run: _Run) -> AsyncIterator[Trace]:
    """Yield the traces of a file with a carrier in the range."""
    try:
        async for trace in reader.traces():
            run.traces += 1
            if any(run.since_ns <= span.start_ns < run.until_ns for span in trace.spans if is_carrier(span)):
                yield trace
            if run.traces % _LINES_AT_ONCE == 0:
                run.tell(run.since_ns, share=getattr(reader, "share_read", None) or 0.0)
    except InputError as exc:
        raise ReadError(str(exc)) from exc


def _can_search(reader: TraceReader) -> TypeGuard[TraceSearch]:
    return hasattr(reader, "search")


def _carriers_only(reader: TraceSearch, kind: str, query: TraceQuery) -> tuple[TraceSearch, TraceQuery]:
    """Narrow a search to traces with carriers, where the back end can.

    Phoenix and Langfuse may have scores in place of carriers, which no search finds: every trace is read.
    """
    match kind:
        case "tempo":
            # one query for all versions of the schema, and for answers with their scores
            named = "" if query.service is None else f" && resource.service.name = {_quoted(query.service)}"
            return reader, replace(query, traceql=f"{{ .{semconv.SCHEMA} != nil{named} }}")
        case "jaeger":
            return _InJaeger(reader), query
        case "langfuse":
            return reader, replace(query, service=None)
        case _:
            return reader, query


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _InJaeger:
    """Searches Jaeger for carriers: by the names that they have, and for answers with their scores."""

    def __init__(self, reader: TraceSearch) -> None:
        self._reader = reader

    @property
    def shortest_ns(self) -> int:
        return self._reader.shortest_ns

    @property
    def longest_ns(self) -> int:
        return self._reader.longest_ns

    async def search(self, query: TraceQuery) -> Page:
        names = [f"{semconv.CARRIER_NAME_PREFIX} {label.value}" for label in Label]
        wanted = [replace(query, operation=name) for name in names]
        wanted.append(replace(query, tags={semconv.EVAL_MODE: "hold"}))
        return Page.joined([await self._reader.search(one) for one in wanted])

    async def get(self, trace_id: str) -> Trace | None:
        return await self._reader.get(trace_id)

    def traces(self) -> AsyncIterator[Trace]:
        return self._reader.traces()

    async def aclose(self) -> None:
        await self._reader.aclose()


async def _by_id(reader: TraceReader, trace_ids: list[str], run: _Run) -> AsyncIterator[Trace]:
    """Yield the traces that exist and can be read, some read at a time; an unreadable one stops no other.

    Raises:
        ReadError: no trace could be read so far, or several in a row could not.
    """
    for first in range(0, len(trace_ids), _AT_ONCE):
        batch = trace_ids[first : first + _AT_ONCE]
        for found in await asyncio.gather(*map(reader.get, batch), return_exceptions=True):
            if isinstance(found, BaseException):
                run.failed_in_a_row += 1
                is_known = isinstance(found, ReadError | InputError) and run.traces
                if not is_known or run.failed_in_a_row == _MOST_FAILURES:
                    raise found
                run.fault(found)
            else:
                run.failed_in_a_row = 0
                if found is not None:
                    run.traces += 1
                    yield found


async def _of_report(path: Path, service: str | None, run: _Run) -> AsyncIterator[AnswerSummary]:
    lines, read, size = (
        report_lines(path),
        0,
        await asyncio.to_thread(lambda: path.stat().st_size if path.exists() else 0),
    )
    try:
        while batch := await asyncio.to_thread(lambda: list(islice(lines, _LINES_AT_ONCE))):
            for summary in await asyncio.to_thread(_summaries, batch, run):
                is_within = not summary.time_ns or run.since_ns <= summary.time_ns < run.until_ns
                if is_within and _is_of_service(summary, service):
                    run.answers += 1
                    yield summary
            read += sum(len(line.text) for line in batch)
            run.tell(run.since_ns, share=read / max(1, size))
    except InputError as exc:
        raise ReadError(str(exc)) from exc


def _summaries(lines: list[ReportLine], run: _Run) -> list[AnswerSummary]:
    found = []
    for line in lines:
        try:
            found.append(summary_of_judged(read_line(line).judged))
        except InputError as fault:
            run.fault(fault)
        else:
            run.traces += 1
    return found


def _is_of_service(summary: AnswerSummary, service: str | None) -> bool:
    return service is None or not summary.service or summary.service == service
