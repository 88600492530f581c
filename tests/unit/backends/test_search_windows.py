"""Searching in windows: nothing is cut silently, whatever a back end's limit is."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backends.http_api import SearchWindow, windows
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.trace import Trace

END = 10_000


class Stored:
    """A back end that holds traces by the time they began, and gives the newest few of a window."""

    shortest_ns = 10
    longest_ns = 4_000

    def __init__(self, times: list[int], limit: int) -> None:
        self._times = times
        self._limit = limit

    async def search(self, query: TraceQuery) -> Page:
        within = [
            number for number, time in enumerate(self._times) if query.since_ns <= time < query.until_ns
        ]
        newest = sorted(within, key=lambda number: self._times[number], reverse=True)
        return Page.of({str(number): None for number in newest[: self._limit]}, limit=self._limit)

    async def get(self, trace_id: str) -> Trace | None:
        raise NotImplementedError

    def traces(self) -> AsyncIterator[Trace]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


async def searched(times: list[int], limit: int) -> list[SearchWindow]:
    return [found async for found in windows(Stored(times, limit), TraceQuery(since_ns=0, until_ns=END))]


@given(st.lists(st.integers(0, END - 1), max_size=60), st.integers(1, 8))
async def test_windows_have_no_gap_and_say_if_they_are_cut(times: list[int], limit: int) -> None:
    found = await searched(times, limit)
    ends = [window.until_ns for window in found]
    assert [window.since_ns for window in found] == [0, *ends[:-1]]
    assert ends[-1] == END
    ids = [trace_id for window in found for trace_id in window.found]
    cut = [window for window in found if window.is_cut]
    missing = {number for number in range(len(times)) if str(number) not in ids}
    assert len(ids) == len(set(ids))
    assert all(any(each.since_ns <= times[number] < each.until_ns for each in cut) for number in missing)


async def test_only_the_shortest_window_is_cut() -> None:
    (cut,) = (window for window in await searched([5_000] * 9, 4) if window.is_cut)
    assert cut.until_ns - cut.since_ns <= Stored.shortest_ns
