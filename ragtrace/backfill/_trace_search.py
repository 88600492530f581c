"""The traces that a selection names: by id, by search, or all of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple, TypeGuard

from ragtrace import semconv
from ragtrace.backends.search_windows import windows
from ragtrace.backfill._selection import Selection
from ragtrace.backfill.report import RunCounts
from ragtrace.errors import ConfigError, ReadError
from ragtrace.ports import TraceQuery, TraceReader, TraceSearch
from ragtrace.traces.trace import Span, Trace

_MOST_FAILURES: Final = 3
"""After this many unreadable traces in a row, the source counts as failed."""


class SearchedUpTo(NamedTuple):
    """Everything before this moment was found: a later run can resume here."""

    time_ns: int


async def find(
    reader: TraceReader, selection: Selection, ledger: RunCounts
) -> AsyncIterator[Trace | SearchedUpTo]:
    """Yield the traces of a selection; those of a search oldest first.

    If a source breaks off, the counts record why, and no more traces follow.

    Raises:
        ReadError: no trace of the source could be read.
        ConfigError: the source does not support the query.
    """
    try:
        async for found in _found(reader, selection, ledger):
            yield found
    except ReadError as exc:
        if not ledger.traces:
            raise
        ledger.broken_off = str(exc)


def matches(trace: Trace, query: TraceQuery) -> bool:
    """Return whether a trace began within the query's time and one of its spans matches all conditions.

    Raises:
        ConfigError: the query is written in TraceQL, which only Tempo understands.
    """
    if query.traceql is not None:
        raise ConfigError(
            "only Tempo takes TraceQL: give a service, an operation or tags to select from files"
        )
    return query.since_ns <= trace.spans[0].start_ns < query.until_ns and any(
        _span_matches(span, query) for span in trace.spans
    )


async def _found(
    reader: TraceReader, selection: Selection, ledger: RunCounts
) -> AsyncIterator[Trace | SearchedUpTo]:
    if selection.trace_ids:
        by_id = _ById(reader, ledger)
        for trace_id in dict.fromkeys(selection.trace_ids):
            if trace := await by_id.get(trace_id):
                yield trace
    elif selection.query is not None and _can_search(reader):
        async for found in _searched(reader, selection.query, ledger):
            yield found
    else:
        async for trace in _all(reader, selection.query):
            ledger.traces += 1
            yield trace


def _span_matches(span: Span, query: TraceQuery) -> bool:
    resource = span.resource.attributes
    return (
        query.service in (None, resource.get(semconv.SERVICE_NAME))
        and query.operation in (None, span.name)
        and all(
            _text(span.attributes.get(key, resource.get(key))) == value for key, value in query.tags.items()
        )
    )


def _text(value: object) -> str | None:
    """Return the text of a value as back ends compare it with a tag."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _all(reader: TraceReader, query: TraceQuery | None) -> AsyncIterator[Trace]:
    async for trace in reader.traces():
        if query is None or matches(trace, query):
            yield trace


async def _searched(
    reader: TraceSearch, query: TraceQuery, ledger: RunCounts
) -> AsyncIterator[Trace | SearchedUpTo]:
    by_id = _ById(reader, ledger)
    async for window in windows(reader, query):
        ledger.cut_windows += window.is_cut
        for trace_id, trace in window.found.items():
            if trace is not None:
                ledger.traces += 1
                yield trace
            elif got := await by_id.get(trace_id):
                yield got
        yield SearchedUpTo(window.until_ns)


class _ById:
    """Reads traces one by one; an unreadable one does not stop the others."""

    def __init__(self, reader: TraceReader, ledger: RunCounts) -> None:
        self._reader = reader
        self._ledger = ledger
        self._failed_in_a_row = 0

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace if it exists and can be read.

        Raises:
            ReadError: no trace could be read so far, or several in a row could not.
        """
        try:
            trace = await self._reader.get(trace_id)
        except ReadError:
            self._failed_in_a_row += 1
            if not self._ledger.traces or self._failed_in_a_row == _MOST_FAILURES:
                raise
            self._ledger.unread.append(trace_id)
            return None
        self._failed_in_a_row = 0
        if trace is None:
            self._ledger.not_found.append(trace_id)
        else:
            self._ledger.traces += 1
        return trace


def _can_search(reader: TraceReader) -> TypeGuard[TraceSearch]:
    return hasattr(reader, "search")
