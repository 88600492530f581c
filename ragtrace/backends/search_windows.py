"""Search a time range in windows small enough that a back end's limit cuts nothing silently.

Back ends return the traces of a window up to a limit and do not report the rest (Jaeger's ``num_traces``,
Tempo's ``limit``). A window that reaches the limit is split until it does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from ragtrace.errors import ReadError, ReadOversized
from ragtrace.ports import Page, TraceQuery, TraceSearch
from ragtrace.traces.trace import Trace

_FIRST_NS: Final = 600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWindow:
    """A searched time range with its new traces."""

    since_ns: int
    until_ns: int
    found: Mapping[str, Trace | None]
    is_cut: bool
    """Whether even the shortest possible window has more traces than the back end returns."""


async def windows(reader: TraceSearch, query: TraceQuery) -> AsyncIterator[SearchWindow]:
    """Yield the results of a query, window by window, from the oldest to the newest.

    Windows are contiguous. Traces of the previous window are left out; a trace longer than a window may occur
    twice.

    Raises:
        ReadError: the back end could not be read.
    """
    since_ns, length_ns = query.since_ns, min(_FIRST_NS, reader.longest_ns)
    before: frozenset[str] = frozenset()
    while since_ns < query.until_ns:
        until_ns = min(since_ns + length_ns, query.until_ns)
        page = await reader.search(replace(query, since_ns=since_ns, until_ns=until_ns))
        if page.is_cut and until_ns - since_ns > reader.shortest_ns:
            length_ns = max(reader.shortest_ns, (until_ns - since_ns) // 2)
            continue
        new = {trace_id: trace for trace_id, trace in page.found.items() if trace_id not in before}
        yield SearchWindow(since_ns=since_ns, until_ns=until_ns, found=new, is_cut=page.is_cut)
        before, since_ns = frozenset(page.found), until_ns
        if 2 * len(page.found) < page.limit:
            length_ns = min(2 * length_ns, reader.longest_ns)


async def cut_if_too_large(
    query: TraceQuery, search: Callable[[TraceQuery], Awaitable[Page]], *, shortest_ns: int, limit: int
) -> Page:
    """Search, and treat an oversized page as cut, so that the window is split.

    Raises:
        ReadError: the search failed, or the page is too long for the shortest time range.
    """
    try:
        return await search(query)
    except ReadOversized:
        if query.until_ns - query.since_ns <= shortest_ns:
            raise
        return Page(found={}, limit=limit, is_cut=True)


async def at_most(limit: int | None, trace_ids: AsyncIterator[str]) -> dict[str, Trace | None] | None:
    """Return each id once, without its trace; ``None`` as soon as there are more than the limit."""
    found: dict[str, Trace | None] = {}
    async for trace_id in trace_ids:
        found[trace_id] = None
        if limit is not None and len(found) > limit:
            return None
    return found


class SearchOnlyReader:
    """Base class of these readers."""

    back_end: ClassVar[str]

    async def traces(self) -> AsyncIterator[Trace]:
        """Raise an error, because the back end cannot list every trace.

        Raises:
            ReadError: always.
        """
        raise ReadError(
            f"{self.back_end} cannot list every trace: search a time range, or name the trace ids"
        )
        yield  # makes this an async generator, as the port requires
