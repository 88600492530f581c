"""The traces that a selection names: by id, by search, or all of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, TypeGuard

from ragtrace import semconv
from ragtrace.backends.windows import windows
from ragtrace.backfill.report import Ledger
from ragtrace.backfill.selection import Selection
from ragtrace.errors import ConfigError
from ragtrace.ports import TraceQuery, TraceReader, TraceSearch
from ragtrace.traces.trace import Span, Trace

__all__ = ["SearchedUpTo", "find", "matches"]


class SearchedUpTo(NamedTuple):
    """Everything before this moment was found: a run may begin again here."""

    time_ns: int


async def find(
    reader: TraceReader, selection: Selection, ledger: Ledger
) -> AsyncIterator[Trace | SearchedUpTo]:
    """Yield the traces of a selection; of a search, from the oldest on.

    Raises:
        ReadError: the source could not be read.
        ConfigError: the source cannot be searched as the query wants.
    """
    if selection.trace_ids:
        for trace_id in dict.fromkeys(selection.trace_ids):
            if trace := await _got(reader, trace_id, ledger):
                yield trace
    elif selection.query is not None and _can_search(reader):
        async for found in _searched(reader, selection.query, ledger):
            yield found
    else:
        async for trace in _all(reader, selection.query):
            ledger.traces += 1
            yield trace


def matches(trace: Trace, query: TraceQuery) -> bool:
    """Say whether a trace began within the query's time and one span of it has all that the query names.

    Raises:
        ConfigError: the query is written in TraceQL, which only Tempo understands.
    """
    if query.traceql is not None:
        raise ConfigError("TraceQL is Tempo's: give a service, an operation or tags to select from files")
    return query.since_ns <= trace.spans[0].start_ns < query.until_ns and any(
        _span_matches(span, query) for span in trace.spans
    )


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
    """Write a value as back ends compare it with a tag."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _all(reader: TraceReader, query: TraceQuery | None) -> AsyncIterator[Trace]:
    async for trace in reader.traces():
        if query is None or matches(trace, query):
            yield trace


async def _searched(
    reader: TraceSearch, query: TraceQuery, ledger: Ledger
) -> AsyncIterator[Trace | SearchedUpTo]:
    async for window in windows(reader, query):
        ledger.cut_windows += window.is_cut
        for trace_id, trace in window.found.items():
            if trace is not None:
                ledger.traces += 1
                yield trace
            elif got := await _got(reader, trace_id, ledger):
                yield got
        yield SearchedUpTo(window.until_ns)


async def _got(reader: TraceReader, trace_id: str, ledger: Ledger) -> Trace | None:
    trace = await reader.get(trace_id)
    if trace is None:
        ledger.not_found.append(trace_id)
    else:
        ledger.traces += 1
    return trace


def _can_search(reader: TraceReader) -> TypeGuard[TraceSearch]:
    return hasattr(reader, "search")
