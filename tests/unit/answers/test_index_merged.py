"""Several indexes merged say what one index of all their answers says."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.answers.index.merged import MergedAnswerIndex
from ragtrace.answers.index.reading import SqliteAnswerIndex
from ragtrace.answers.index.sessions import put_session
from ragtrace.answers.index.tables import INDEX_TABLES
from ragtrace.answers.index.writes import NameCache, note_feedback, put
from ragtrace.answers.port import AnswerFilter, AnswerIndex, AnswerPage, SessionPage, SortBy, TrafficScope
from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerSummary
from ragtrace.errors import InputError, ReadError
from ragtrace.model import Label
from tests.unit.answers.drawn_rows import filters, scopes, summaries
from tests.unit.answers.rows import HOUR_NS, NOON_NS, a_row, hex_id

TRACES = 9
NUMBERS = (0, 3, 11, 4_000)
"""Parts are known by number; which ones there are is nobody's business."""
LAW = settings(max_examples=40, deadline=None)


class Filled:
    """An index in memory."""

    def __init__(self, *, limit_s: float = 10, few: int = 8_000) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.db.executescript(INDEX_TABLES)
        self.names = NameCache()
        self.index = SqliteAnswerIndex(self.connect, limit_s=limit_s, few=few)

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        yield self.db

    def put(self, *rows: AnswerSummary) -> None:
        for row in rows:
            put(self.db, row, self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The same answers in one index, and in several."""

    one: Filled
    several: Mapping[int, Filled]
    part_of: Callable[[str], int]

    def merged(self, *, is_routed: bool = False) -> MergedAnswerIndex:
        parts = {number: part.index for number, part in self.several.items()}
        return MergedAnswerIndex(lambda: parts, part_of=self.part_of if is_routed else None)

    def put(self, *rows: AnswerSummary) -> None:
        for row in rows:
            self.one.put(row)
            self.several[self.part_of(row.key.trace_id)].put(row)

    def close(self) -> None:
        for each in (self.one, *self.several.values()):
            each.db.close()


rows = st.lists(summaries(traces=TRACES), max_size=25)
places = st.lists(st.sampled_from(NUMBERS), min_size=TRACES + 1, max_size=TRACES + 1)
limits = st.integers(1, 5)


def split(answers: Sequence[AnswerSummary], owners: Sequence[int], **options: Any) -> Split:
    found = Split(
        one=Filled(**options),
        several={number: Filled(**options) for number in sorted(set(owners))},
        part_of=lambda trace_id: owners[int(trace_id, 16) % len(owners)],
    )
    found.put(*answers)
    return found


def run(work: Callable[[], Awaitable[None]], found: Split) -> None:
    async def all_of_it() -> None:
        await work()

    try:
        asyncio.run(all_of_it())
    finally:
        found.close()


def counted(answers: Sequence[object]) -> Counter[str]:
    return Counter(map(repr, answers))


def order_key(row: AnswerSummary, chosen: AnswerFilter, sort: SortBy) -> object:
    if sort in (SortBy.WORST, SortBy.BEST):
        metric = row.metric(chosen.metric or "faithfulness")
        return metric and metric.score
    keys = {SortBy.COST: row.cost_usd, SortBy.SUSPICION: row.suspicion}
    return keys.get(sort, (row.is_disputed, row.doubt) if sort is SortBy.DOUBT else row.time_ns)


async def pages(
    index: AnswerIndex, chosen: AnswerFilter, sort: SortBy, limit: int
) -> list[tuple[AnswerSummary, ...]]:
    found: list[AnswerPage] = [await index.page(chosen, sort=sort, limit=limit)]
    while found[-1].next is not None:
        found.append(await index.page(chosen, sort=sort, limit=limit, after=found[-1].next))
    assert not any(page.is_cut for page in found)
    return [page.answers for page in found]


@pytest.mark.slow
@LAW
@given(rows, places, filters, st.sampled_from(SortBy), limits, st.booleans(), st.booleans())
def test_lists_are_those_of_one_index(
    answers: list[AnswerSummary],
    owners: list[int],
    chosen: AnswerFilter,
    sort: SortBy,
    limit: int,
    is_along: bool,
    is_routed: bool,
) -> None:
    found = split(answers, owners, **({"few": 0} if is_along else {}))

    async def compare() -> None:
        one = await pages(found.one.index, chosen, sort, limit)
        merged = found.merged(is_routed=is_routed)
        several = await pages(merged, chosen, sort, limit)
        assert [[order_key(row, chosen, sort) for row in page] for page in several] == [
            [order_key(row, chosen, sort) for row in page] for page in one
        ]
        shown = [row for page in several for row in page]
        assert counted(shown) == counted([row for page in one for row in page])
        assert [row async for row in merged.every(chosen, sort=sort)] == shown

    run(compare, found)


@pytest.mark.slow
@LAW
@given(rows, places, scopes, st.sampled_from([1, 5, 24]), limits)
def test_overviews_are_those_of_one_index(
    answers: list[AnswerSummary], owners: list[int], scope: TrafficScope, hours: int, limit: int
) -> None:
    found = split(answers, owners)

    async def compare() -> None:
        one, merged = found.one.index, found.merged()
        sums = await merged.sums(scope)
        assert sums == await one.sums(scope)
        assert list(sums.blames.values()) == sorted(sums.blames.values(), reverse=True)
        assert await merged.quadrant(scope) == await one.quadrant(scope)
        assert await merged.metrics(scope) == await one.metrics(scope)
        assert await merged.newest_ns(scope) == await one.newest_ns(scope)
        for metric in ("faithfulness", "hallucination", "unknown"):
            period_ns = hours * HOUR_NS
            trend = await merged.trend(metric, scope, period_ns=period_ns)
            assert trend == await one.trend(metric, scope, period_ns=period_ns)
        for dimension in ("service", "model", "prompt_version", "tenant", "blame"):
            most = await merged.values(dimension, scope, limit=limit)
            expected = await one.values(dimension, scope, limit=limit)
            assert list(most.items()) == list(expected.items())

    run(compare, found)


@pytest.mark.slow
@LAW
@given(rows, places, scopes, limits)
def test_random_order_is_that_of_one_index(
    answers: list[AnswerSummary], owners: list[int], scope: TrafficScope, limit: int
) -> None:
    found = split(answers, owners)

    async def compare() -> None:
        merged, after = found.merged(), -1.0
        while True:
            several = await merged.random_order(scope, after=after, limit=limit)
            assert several == await found.one.index.random_order(scope, after=after, limit=limit)
            if len(several) < limit:
                return
            after = several[-1][0]

    run(compare, found)


@pytest.mark.slow
@LAW
@given(rows, places, st.lists(st.tuples(summaries(traces=TRACES), st.sampled_from(["up", "down"]))))
def test_an_answer_has_the_evaluations_and_feedback_that_one_index_has(
    answers: list[AnswerSummary], owners: list[int], said: list[tuple[AnswerSummary, str]]
) -> None:
    found = split(answers, owners)
    for row, feedback in said:
        for each in (found.one, found.several[found.part_of(row.key.trace_id)]):
            note_feedback(each.db, row.key, feedback)

    async def compare() -> None:
        for row in [*answers, *(row for row, _ in said)]:
            expected = await found.one.index.versions(row.key)
            for is_routed in (False, True):
                assert await found.merged(is_routed=is_routed).versions(row.key) == expected

    run(compare, found)


@pytest.mark.slow
@LAW
@given(rows, places, st.sampled_from([None, "", "acme"]), limits)
def test_a_session_has_the_answers_that_one_index_has(
    answers: list[AnswerSummary], owners: list[int], tenant: str | None, limit: int
) -> None:
    found = split(answers, owners)

    async def compare() -> None:
        for most in (limit, 100):
            several = await found.merged().session("one", tenant=tenant, limit=most)
            one = await found.one.index.session("one", tenant=tenant, limit=most)
            assert [row.time_ns for row in several] == [row.time_ns for row in one]
        assert counted(several) == counted(one)

    run(compare, found)


judged_sessions = st.builds(
    SessionSummary,
    session=st.sampled_from("abcd"),
    tenant=st.sampled_from(["", "acme"]),
    trace_id=st.just(hex_id(1, 32)),
    answer_span_id=st.just(hex_id(2)),
    span_id=st.integers(1, 4).map(hex_id),
    supersedes=st.sampled_from(["", hex_id(1), hex_id(2)]),
    time_ns=st.integers(NOON_NS, NOON_NS + 6),
    label=st.sampled_from([Label.PASS, Label.FAIL]),
    turns=st.just(2),
    decided=st.just(1),
    faithful=st.just(1),
)


async def session_pages(index: AnswerIndex, limit: int, **chosen: Any) -> list[tuple[SessionSummary, ...]]:
    found: list[SessionPage] = [await index.sessions(**chosen, limit=limit)]
    while found[-1].next is not None:
        found.append(await index.sessions(**chosen, limit=limit, after=found[-1].next))
    return [page.sessions for page in found]


@pytest.mark.slow
@LAW
@given(
    st.lists(judged_sessions, max_size=15),
    st.fixed_dictionaries({each: st.sampled_from(NUMBERS) for each in "abcd"}),
    st.sampled_from([None, "acme"]),
    st.none() | st.just(Label.FAIL),
    limits,
)
def test_judged_sessions_are_those_of_one_index(
    sessions: list[SessionSummary],
    owners: dict[str, int],
    tenant: str | None,
    label: Label | None,
    limit: int,
) -> None:
    found = split((), list(owners.values()))
    for each in sessions:
        put_session(found.one.db, each)
        put_session(found.several[owners[each.session]].db, each)

    async def compare() -> None:
        merged = found.merged()
        one = await session_pages(found.one.index, limit, tenant=tenant, label=label)
        several = await session_pages(merged, limit, tenant=tenant, label=label)
        assert [[row.time_ns for row in page] for page in several] == [
            [row.time_ns for row in page] for page in one
        ]
        assert counted([row for page in several for row in page]) == counted(
            [row for page in one for row in page]
        )
        assert await merged.judged_sessions("a", tenant=tenant) == await found.one.index.judged_sessions(
            "a", tenant=tenant
        )

    run(compare, found)


async def came(index: AnswerIndex, after: int, limit: int) -> tuple[list[AnswerSummary], int]:
    found: list[AnswerSummary] = []
    has_more = True
    while has_more:
        part = await index.arrivals(AnswerFilter(), after=after, limit=limit)
        found += part.answers
        after, has_more = part.position, part.has_more
    return found, after


@pytest.mark.slow
@LAW
@given(rows, rows, places, st.integers(1, 9))
def test_arrivals_are_those_of_one_index(
    before: list[AnswerSummary], after: list[AnswerSummary], owners: list[int], limit: int
) -> None:
    answers = [_apart(number, row) for number, row in enumerate([*before, *after])]
    found = split(answers[: len(before)], owners)

    def by_part(came: list[AnswerSummary]) -> dict[int, list[AnswerSummary]]:
        parts: dict[int, list[AnswerSummary]] = {}
        for row in came:
            parts.setdefault(found.part_of(row.key.trace_id), []).append(row)
        return parts

    async def compare() -> None:
        one, merged = found.one.index, found.merged()
        assert by_part((await came(merged, 0, limit))[0]) == by_part((await came(one, 0, limit))[0])
        now_one = (await one.arrivals(AnswerFilter())).position
        now = await merged.arrivals(AnswerFilter())
        assert (now.answers, now.has_more) == ((), False)
        found.put(*answers[len(before) :])
        several, position = await came(merged, now.position, limit)
        assert by_part(several) == by_part((await came(one, now_one, limit))[0])
        assert (await merged.arrivals(AnswerFilter(), after=position)).answers == ()

    run(compare, found)


def _apart(number: int, row: AnswerSummary) -> AnswerSummary:
    """Give an evaluation a carrier of its own: one that is written again may come again, or not."""
    superseded = row.supersedes and hex_id(100 + int(row.supersedes, 16))
    return replace(row, carrier_span_id=hex_id(100 + number), supersedes=superseded)


async def test_search_that_is_cut_in_one_part_shows_nothing_from_behind_the_cut() -> None:
    answers = [a_row(n, minute=n, trace=n, judge="rare" if n % 7 == 0 else "usual") for n in range(600)]
    found = split(answers, [3, 11, 11, 0], limit_s=-1, few=0)
    shown: list[int] = []
    cuts, after = 0, None
    while True:
        page = await found.merged().page(AnswerFilter(judge="rare"), after=after, limit=20)
        assert page.is_cut == (page.searched_to_ns is not None)
        shown += [row.time_ns for row in page.answers]
        cuts += page.is_cut
        after = page.next
        if after is None:
            break
    assert shown == sorted((row.time_ns for row in answers if row.judge == "rare"), reverse=True)
    assert cuts > 2
    found.close()


async def test_parts_may_come_and_go_between_the_pages_of_a_list() -> None:
    found = split([a_row(n, minute=n, trace=n) for n in range(30)], [0, 3, 11])
    there = {number: part.index for number, part in found.several.items()}
    late = there.pop(11)
    merged = MergedAnswerIndex(lambda: there)
    first = await merged.page(AnswerFilter(), limit=4)
    there[11] = late
    del there[0]
    second = await merged.page(AnswerFilter(), limit=4, after=first.next)
    assert [_trace(row) for row in first.answers] == [28, 27, 25, 24]
    assert [_trace(row) for row in second.answers] == [23, 22, 20, 19]
    found.close()


async def test_arrivals_of_a_part_that_comes_later_begin_then_and_of_one_that_returns_go_on() -> None:
    found = split([a_row(n, trace=n) for n in range(6)], [0, 3])
    parts = {number: part.index for number, part in found.several.items()}
    there = {0: parts[0]}
    merged = MergedAnswerIndex(lambda: there)
    position = (await merged.arrivals(AnswerFilter())).position
    there[3] = parts[3]
    joined = await merged.arrivals(AnswerFilter(), after=position)
    assert joined.answers == ()
    found.put(a_row(7, trace=7), a_row(8, trace=8))
    del there[3]
    left = await merged.arrivals(AnswerFilter(), after=joined.position)
    assert [_trace(row) for row in left.answers] == [8]
    there[3] = parts[3]
    back = await merged.arrivals(AnswerFilter(), after=left.position)
    assert [_trace(row) for row in back.answers] == [7]
    found.close()


async def test_what_no_part_has_is_empty() -> None:
    merged: AnswerIndex = MergedAnswerIndex(dict)
    scope = TrafficScope()
    assert await merged.page(AnswerFilter()) == AnswerPage(answers=(), next=None)
    assert [row async for row in merged.every(AnswerFilter())] == []
    assert (await merged.sums(scope)).answers == 0
    assert await merged.quadrant(scope) is None
    assert (await merged.arrivals(AnswerFilter())).answers == ()
    assert await merged.versions(a_row().key) == []
    assert (await merged.trend("faithfulness", scope, period_ns=HOUR_NS)).points == ()
    with pytest.raises(ValueError, match="multiple of an hour"):
        await merged.trend("faithfulness", scope, period_ns=HOUR_NS + 1)
    with pytest.raises(ValueError, match="no dimension 'color'"):
        await merged.values("color", scope)


async def test_places_of_another_list_are_refused() -> None:
    found = split([a_row(n, trace=n) for n in range(4)], [0, 3])
    merged, chosen = found.merged(), AnswerFilter()
    page = await merged.page(chosen, limit=1)
    with pytest.raises(InputError, match="begin at the first page"):
        await merged.page(chosen, after=page.next, sort=SortBy.COST)
    of_one = await found.one.index.page(chosen, limit=1)
    with pytest.raises(InputError, match="begin at the first page"):
        await merged.page(chosen, after=of_one.next)
    with pytest.raises(InputError, match="no place in the list of sessions"):
        await merged.sessions(tenant=None, after="1-2")
    with pytest.raises(InputError, match="begin without one"):
        await merged.arrivals(chosen, after=5_000)
    with pytest.raises(InputError, match="hexadecimal"):
        await merged.page(AnswerFilter(trace_id="the one"))
    found.close()


async def test_a_part_that_cannot_be_read_is_told_and_not_left_out() -> None:
    found = split([a_row(n, trace=n) for n in range(4)], [0, 3])
    found.several[3].db.executescript("DROP TABLE answer_row")
    with pytest.raises(ReadError, match="cannot be read"):
        await found.merged().page(AnswerFilter())
    found.close()


async def test_only_the_owner_of_a_trace_is_asked_for_it() -> None:
    found = split([a_row(n, trace=n) for n in range(4)], [0, 3])
    found.several[3].db.executescript("DROP TABLE answer_row")
    merged = found.merged(is_routed=True)
    assert len(await merged.versions(a_row(2, trace=2).key)) == 1
    assert len((await merged.page(AnswerFilter(trace_id=hex_id(2, 32)))).answers) == 1
    gone = MergedAnswerIndex(dict, part_of=found.part_of)
    assert await gone.versions(a_row(2, trace=2).key) == []
    found.close()


def _trace(row: AnswerSummary) -> int:
    return int(row.key.trace_id, 16)
