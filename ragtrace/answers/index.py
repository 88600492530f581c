"""Search the index of judged answers, lists by rows and overviews by sums; and one that a page fills itself.

If few answers can match at all, as an index tells, a search looks at all of them. Otherwise, it goes through
candidates in the order of the list, along an index, until the page is full or its time is over.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ragtrace.answers import sums
from ragtrace.answers.filters import (
    Condition,
    Place,
    all_of,
    clean,
    counted_of,
    decode,
    encode,
    metric_of,
    narrow,
    streams_in,
    times_in,
    times_of,
)
from ragtrace.answers.index_rows import (
    INDEX_TABLES,
    MOST_VERSIONS,
    POSITIONS,
    Row,
    Seal,
    as_it_is,
    forget,
    judged_sessions,
    of_answer,
    put,
    put_session,
    rows_of,
    session_page,
    size,
    summaries,
    tenant_in,
)
from ragtrace.answers.port import (
    AnswerFilter,
    AnswerPage,
    Arrivals,
    MetricTrend,
    Quadrant,
    Release,
    SessionPage,
    SortBy,
    Sums,
    TrafficScope,
)
from ragtrace.answers.summary import AnswerKey, AnswerSummary, SessionSummary
from ragtrace.answers.sums import DAY, HOUR_NS, days_with, fold
from ragtrace.errors import ReadError, WriteError
from ragtrace.model import Label
from ragtrace.sql import Statements
from ragtrace.sqlite_file import open_temporary, transaction

FEW: Final = 12_000
"""So many candidates are looked at and sorted in well under the limit."""
_MOST_AT_ONCE: Final = 1_000


Candidate = tuple[float, ...]
"""A row that may match: its place, then 1 if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of rows."""

    columns: tuple[str, ...]
    is_descending: bool
    among: str = ""
    """What the rows of its index have in common."""

    def after(self, place: Place | None, number: str = "id") -> Condition:
        """Return the condition to come after a place."""
        if place is None:
            return Condition()
        marks = ", ".join("?" for _ in place)
        sign = "<" if self.is_descending else ">"
        return Condition(f"({', '.join((*self.columns, number))}) {sign} ({marks})", place)

    def by(self, number: str = "id") -> str:
        """Return the words after ``ORDER BY``."""
        way = "DESC" if self.is_descending else "ASC"
        return ", ".join(f"{name} {way}" for name in (*self.columns, number))


class Found(NamedTuple):
    """What a search found."""

    places: list[Place]
    more: Place | None
    """Where to go on; ``None`` at the end."""
    is_cut: bool


_BY_TIME: Final = ("time_ns",)
_BY_SCORE: Final = ("score",)
BY_POSITION: Final = Order(columns=("position",), is_descending=False)


def order_of(sort: SortBy, *, is_lower_better: bool) -> Order:
    """Return the order of rows that a list has."""
    match sort:
        case SortBy.COST:
            return Order(
                columns=("cost_usd",), is_descending=True, among="is_valid = 1 AND cost_usd IS NOT NULL"
            )
        case SortBy.DOUBT:
            return Order(columns=("is_disputed", "doubt"), is_descending=True, among="is_valid = 1")
        case SortBy.SUSPICION:
            return Order(
                columns=("suspicion",), is_descending=True, among="is_valid = 1 AND suspicion IS NOT NULL"
            )
        case SortBy.WORST | SortBy.BEST:
            return Order(columns=_BY_SCORE, is_descending=(sort is SortBy.WORST) == is_lower_better)
        case _:
            return Order(columns=_BY_TIME, is_descending=sort is SortBy.NEWEST)


class Search:
    """One list, in one transaction.

    Raises:
        InputError: the beginning of a trace id is not hexadecimal.
    """

    def __init__(self, db: Statements, chosen: AnswerFilter, order: Order, few: int = FEW) -> None:
        self.db = db
        self.chosen = chosen
        self.order = order
        self.few = few
        self.streams = streams_in(db, chosen.scope)
        self.meets = all_of(chosen, self.streams)

    def find(self, after: Place | None, *, limit: int, is_over: Callable[[], bool]) -> Found:
        """Return the next places of the list, at most ``limit``; fewer only at the end or if time is over."""
        found = list(narrow(self.chosen, most=self.few + 1))
        if "NOT NULL" in self.order.among:
            found.append(Condition(self.order.among))
        if self.order.columns != _BY_TIME:  # else an index leads through the scope in the order of the list
            found.append(times_of(self.chosen.scope).and_(self.streams))
        few = next((each for each in found if self._count(each) <= self.few), None)
        if few is not None:
            return _page(self._among(few, after, limit), limit)
        return self._along(self._chunks(after, limit + 1), limit, is_over)

    def _count(self, condition: Condition) -> int:
        query = f"SELECT count(*) FROM (SELECT 1 FROM answer_row WHERE {condition.sql} LIMIT ?) AS found"
        (found,) = self.db.execute(query, (*condition.values, self.few + 1)).fetchone()
        return int(found)

    def _among(self, few: Condition, after: Place | None, limit: int) -> list[Place]:
        """Look at all of a few candidates, and sort those that match."""
        source = Condition(
            f"(SELECT * FROM answer_row WHERE {few.sql} LIMIT ?) AS answer_row", (*few.values, self.few)
        )
        known = Condition(f"{self.order.columns[0]} IS NOT NULL").and_(self.order.after(after))
        if self.order.columns == _BY_SCORE:  # scores are looked up, and not gone through
            source = source._replace(sql=f"{source.sql} CROSS JOIN answer_score AS scored")
            known = Condition("scored.answer = id AND metric = ?", (metric_of(self.chosen),)).and_(known)
        wanted = known.and_(self.meets)
        return self.db.execute(
            f"SELECT {', '.join(self.order.columns)}, id FROM {source.sql} WHERE {wanted.sql}"
            f" ORDER BY {self.order.by()} LIMIT ?",
            (*source.values, *wanted.values, limit + 1),
        ).fetchall()

    def _along(self, chunks: Iterator[list[Candidate]], limit: int, is_over: Callable[[], bool]) -> Found:
        """Go through candidates in order, until the page is full or time is over."""
        places: list[Place] = []
        for chunk in chunks:
            places += [candidate[:-1] for candidate in chunk if candidate[-1]]
            if len(places) > limit:
                break
            if chunk and is_over():
                return Found(places, chunk[-1][:-1], is_cut=len(places) < limit)
        return _page(places, limit)

    def _chunks(self, after: Place | None, number: int) -> Iterator[list[Candidate]]:
        if self.order.columns == _BY_SCORE:
            yield from _repeated(self._by_score, after, number)
        elif self.order.columns != _BY_TIME:
            yield from _repeated(self._by_column, after, number)
        else:
            read = self._windows if self.streams.sql else self._stretch
            for low, high in self._stretches(after):
                yield from read(low, high, after, number)
                number = _MOST_AT_ONCE

    def _by_column(self, after: Place | None, number: int) -> list[Candidate]:
        """Read candidates along the index of a column."""
        return self._rows(Condition(self.order.among).and_(self.order.after(after)), number)

    def _rows(self, along: Condition, number: int) -> list[Candidate]:
        where = f" WHERE {along.sql}" if along.sql else ""
        return self._read(
            f"SELECT {', '.join(self.order.columns)}, id, CASE WHEN {self.meets.sql} THEN 1 ELSE 0 END"
            f" FROM (SELECT * FROM answer_row{where} ORDER BY {self.order.by()} LIMIT ?) AS answer_row"
            f" ORDER BY {self.order.by()}",
            (*self.meets.values, *along.values, number),
        )

    def _by_score(self, after: Place | None, number: int) -> list[Candidate]:
        """Read candidates along the scores of each label."""
        chosen, place = self.chosen, self.order.after(after, "answer")
        given = chosen.label is not None and chosen.metric is not None
        labels = (chosen.label,) if given and chosen.label else tuple(Label)
        queries, values = [], list[object]()
        for label in labels:
            of_label = Condition("metric = ? AND label = ?", (metric_of(chosen), label.value)).and_(
                _from("score >= ?", chosen.min_score, 0.0), _from("score <= ?", chosen.max_score, 1.0), place
            )
            queries.append(
                f"SELECT score, answer FROM (SELECT score, answer FROM answer_score WHERE {of_label.sql}"
                f" ORDER BY {self.order.by('answer')} LIMIT ?) AS of_{label.value}"
            )
            values += [*of_label.values, number]
        return self._read(
            f"SELECT score, id, CASE WHEN {self.meets.sql} THEN 1 ELSE 0 END FROM"
            f" (SELECT score, answer FROM ({' UNION ALL '.join(queries)}) AS each_label"
            f" ORDER BY {self.order.by('answer')} LIMIT ?) AS scored"
            f" JOIN answer_row ON answer_row.id = scored.answer ORDER BY {self.order.by()}",
            (*self.meets.values, *values, number),
        )

    def _stretches(self, after: Place | None) -> Iterator[tuple[int, int]]:
        """Yield the stretches of time that can have a match, in the order of the list."""
        low, high = times_in(self.chosen.scope)
        newest, oldest = (
            self.db.execute(f"SELECT time_ns FROM answer_row ORDER BY time_ns {way} LIMIT 1").fetchone()
            for way in ("DESC", "ASC")
        )
        if newest is None:
            return
        low, high, is_back = max(low, oldest[0]), min(high, newest[0]), self.order.is_descending
        if after is not None:
            low, high = (low, min(high, int(after[0]))) if is_back else (max(low, int(after[0])), high)
        days = days_with(self.db, counted_of(self.chosen), clean(self.chosen.blame or ""))
        if days is None:
            yield low, high
            return
        begins = [first for first in sorted(days) if first - DAY not in days]
        ends = [first + DAY for first in sorted(days) if first + DAY not in days]
        for first, end in sorted(zip(begins, ends, strict=True), reverse=is_back):
            stretch = max(low, first * HOUR_NS), min(high, end * HOUR_NS - 1)
            if stretch[0] <= stretch[1]:
                yield stretch

    def _stretch(self, low: int, high: int, after: Place | None, number: int) -> Iterator[list[Candidate]]:
        """Read the candidates of a stretch of time."""
        within = self._fed(low, high)
        yield from _repeated(
            lambda place, most: self._rows(within.and_(self.order.after(place)), most), after, number
        )

    def _fed(self, low: int, high: int) -> Condition:
        """Return the condition to be in a stretch of time, and to have feedback if the filter wants it."""
        is_fed = self.chosen.feedback not in (None, "", "none")
        within = Condition("time_ns >= ? AND time_ns <= ?", (low, high))
        return within.and_(Condition("feedback != ''" if is_fed else ""))

    def _windows(self, low: int, high: int, after: Place | None, number: int) -> Iterator[list[Candidate]]:
        """Read the candidates of a scope's streams by spans of time, which are longer where there are few."""
        is_back, length = self.order.is_descending, HOUR_NS
        while low <= high:
            begin, end = (max(low, high - length), high) if is_back else (low, min(high, low + length))
            within = self._fed(begin, end).and_(self.streams, self.order.after(after))
            chunk = self._rows(within, _MOST_AT_ONCE)
            yield chunk
            if len(chunk) == _MOST_AT_ONCE:
                after = chunk[-1][:-1]
                low, high = (low, int(after[0])) if is_back else (int(after[0]), high)
                length = max(length // 4, 1)
                continue
            low, high = (low, begin - 1) if is_back else (end + 1, high)
            length = 4 * length if len(chunk) < _MOST_AT_ONCE // 4 else length

    def _read(self, query: str, values: tuple[object, ...]) -> list[Candidate]:
        return self.db.execute(query, values).fetchall()


def _from(sql: str, bound: float | None, default: float) -> Condition:
    return Condition(sql, (default if bound is None else bound,))


def _repeated(
    read: Callable[[Place | None, int], list[Candidate]], after: Place | None, number: int
) -> Iterator[list[Candidate]]:
    """Read on and on, more each time."""
    while chunk := read(after, number):
        yield chunk
        if len(chunk) < number:
            return
        after, number = chunk[-1][:-1], min(4 * number, max(number, _MOST_AT_ONCE))


def _page(places: list[Place], limit: int) -> Found:
    shown = places[:limit]
    return Found(shown, shown[-1] if len(places) > limit else None, is_cut=False)


Connect = Callable[[], AbstractContextManager[Statements]]
"""Opens the index for reading: what is read inside is of one moment."""

_LIMIT_S: Final = 0.12
_AT_ONCE: Final = 1_000
_MOST_OF_SESSION: Final = 20_000
_LOOKED_BACK: Final = 1_000
"""Rows that may have come after one with a larger number."""

ReadT = TypeVar("ReadT")


class AnswerIndex:
    """Searches judged answers, in threads, while others may write. Superseded evaluations do not count.

    **Errors.** Every method raises ReadError if the index cannot be read, and InputError if a cursor is not
    one of this filter, or a trace id is not hexadecimal.
    """

    def __init__(
        self, connect: Connect, *, unseal: Seal = as_it_is, limit_s: float = _LIMIT_S, few: int = FEW
    ) -> None:
        """Search for ``limit_s`` seconds at most, and sort so ``few`` candidates without an index."""
        self._connect = connect
        self._unseal = unseal
        self._limit_s = limit_s
        self._few = few

    async def page(
        self, chosen: AnswerFilter, *, sort: SortBy = SortBy.NEWEST, after: str | None = None, limit: int = 50
    ) -> AnswerPage:
        """Return a page of a list. ``chosen.text`` is ignored: the index has no text."""
        return await self._read(lambda db: self._page(db, chosen, sort, after, limit))

    async def every(
        self, chosen: AnswerFilter, *, sort: SortBy = SortBy.NEWEST
    ) -> AsyncIterator[AnswerSummary]:
        """Yield all answers of a list, for an export; those that come meanwhile may be among them."""
        after: str | None = None
        while True:
            page = await self.page(chosen, sort=sort, after=after, limit=_AT_ONCE)
            for answer in page.answers:
                yield answer
            if page.next is None:
                return
            after = page.next

    async def arrivals(
        self, chosen: AnswerFilter, *, after: frozenset[int] | None = None, limit: int = 500
    ) -> Arrivals:
        """Return the valid evaluations that came after a position; without one, only the position now.

        An evaluation that is written again does not come again.
        """
        return await self._read(lambda db: _arrivals(db, chosen, after, limit, self._unseal))

    async def versions(self, key: AnswerKey) -> Sequence[AnswerSummary]:
        """Return the evaluations of an answer, the valid one first, then the newest."""
        return await self._read(lambda db: _versions(db, key, self._unseal))

    async def session(self, session: str, *, tenant: str | None, limit: int = 100) -> Sequence[AnswerSummary]:
        """Return the first answers of a session in the order of time."""
        return await self._read(lambda db: _session(db, session, tenant, limit, self._unseal))

    async def sessions(
        self, *, tenant: str | None, label: Label | None = None, after: str | None = None, limit: int = 50
    ) -> SessionPage:
        """Return a page of the sessions of answers, the newest answer first.

        With a label, they are those that were judged so as a whole, the newest verdict first.
        """
        return await self._read(
            lambda db: session_page(db, tenant=tenant, label=label, after=after, limit=limit)
        )

    async def judged_sessions(self, session: str, *, tenant: str | None) -> Sequence[SessionSummary]:
        """Return the judged sessions under an id, the newest first."""
        return await self._read(lambda db: judged_sessions(db, session, tenant))

    async def metrics(self, scope: TrafficScope) -> Sequence[str]:
        """Return the names of the metrics that occur, ``faithfulness`` first."""
        return await self._read(lambda db: sums.metrics(db, scope))

    async def trends(
        self, metrics: Sequence[str], scope: TrafficScope, *, period_ns: int
    ) -> Sequence[MetricTrend]:
        """Return metrics over time, in their order. The scope is widened to whole hours.

        Periods are multiples of an hour, counted from 1970.

        Raises:
            ValueError: the period is not a multiple of an hour.
        """
        return await self._read(lambda db: sums.trends(db, metrics, scope, period_ns=period_ns))

    async def sums(self, scope: TrafficScope) -> Sums:
        """Return a scope in numbers. It is widened to whole hours."""
        return await self._read(lambda db: sums.sums(db, scope))

    async def quadrant(self, scope: TrafficScope) -> Quadrant | None:
        """Return the quadrant; ``None`` if no answer has both metrics."""
        return await self._read(lambda db: sums.quadrant(db, scope))

    async def values(self, dimension: str, scope: TrafficScope, *, limit: int = 100) -> Mapping[str, int]:
        """Return the values of a dimension with their number of answers, the most frequent first.

        Raises:
            ValueError: there is no such dimension.
        """
        return await self._read(lambda db: sums.values(db, dimension, scope, limit=limit))

    async def releases(self, scope: TrafficScope) -> Sequence[Release]:
        """Return the releases of a scope, in order of time."""
        return await self._read(lambda db: sums.releases(db, scope))

    async def newest_ns(self, scope: TrafficScope) -> int | None:
        """Return the time of the newest answer; ``None`` without any."""
        return await self._read(lambda db: sums.newest_ns(db, scope))

    async def random_order(
        self, scope: TrafficScope, *, after: float, limit: int
    ) -> Sequence[tuple[float, AnswerSummary]]:
        """Return the next answers in random order, which does not depend on when they came.

        Each comes with its position in [0, 1). ``after`` is the last known position, or -1 to begin. Fewer
        than ``limit`` come only at the end.
        """
        return await self._read(lambda db: self._random_order(db, scope, after, limit))

    async def _read(self, query: Callable[[Statements], ReadT]) -> ReadT:
        return await asyncio.to_thread(self._run, query)

    def _run(self, query: Callable[[Statements], ReadT]) -> ReadT:
        try:
            with self._connect() as db:
                return query(db)
        except sqlite3.Error as exc:
            raise ReadError(f"the index of answers cannot be read: {exc}") from exc

    def _page(
        self, db: Statements, chosen: AnswerFilter, sort: SortBy, after: str | None, limit: int
    ) -> AnswerPage:
        order = order_of(sort, is_lower_better=sums.is_lower_better(db, metric_of(chosen)))
        place = None if after is None else decode(after, chosen, sort, values=len(order.columns) + 1)
        search = Search(db, chosen, order, self._few)
        deadline = time.monotonic() + self._limit_s
        found = search.find(place, limit=limit, is_over=lambda: time.monotonic() >= deadline)
        is_by_time = found.is_cut and found.more is not None and sort in (SortBy.NEWEST, SortBy.OLDEST)
        return AnswerPage(
            answers=tuple(summaries(db, [int(place[-1]) for place in found.places], self._unseal)),
            next=None if found.more is None else encode(found.more, chosen, sort),
            is_cut=found.is_cut,
            searched_to_ns=int(found.more[0]) if is_by_time and found.more else None,
        )

    def _random_order(
        self, db: Statements, scope: TrafficScope, after: float, limit: int
    ) -> list[tuple[float, AnswerSummary]]:
        search = Search(db, AnswerFilter(scope=scope), BY_POSITION, self._few)
        start = (int(after * POSITIONS), 2**62) if after >= 0 else None
        places = search.find(start, limit=limit, is_over=lambda: False).places
        told = summaries(db, [int(place[-1]) for place in places], self._unseal)
        return list(zip((place[0] / POSITIONS for place in places), told, strict=True))


def _arrivals(
    db: Statements, chosen: AnswerFilter, after: frozenset[int] | None, limit: int, unseal: Seal
) -> Arrivals:
    if after is None:
        newest = db.execute("SELECT id FROM answer_row ORDER BY id DESC LIMIT ?", (_LOOKED_BACK,))
        return Arrivals(answers=(), position=frozenset(number for (number,) in newest))
    # with several writers, a row may be seen after one with a larger number
    start = min(after, default=0) if len(after) >= _LOOKED_BACK else 0
    there = [
        number
        for (number,) in db.execute(
            "SELECT id FROM answer_row WHERE id >= ? ORDER BY id LIMIT ?",
            (start, _LOOKED_BACK + limit + 1),
        )
    ]
    fresh = [number for number in there if number not in after]
    came = fresh[:limit]
    position = frozenset(
        [number for number in there if number in after or number in set(came)][-_LOOKED_BACK:]
    )
    wanted = all_of(chosen, streams_in(db, chosen.scope)).and_(
        Condition(f"id IN ({', '.join('?' for _ in came)})", tuple(came))
    )
    ids = sorted(row["id"] for row in rows_of(db, wanted)) if came else []
    return Arrivals(answers=tuple(summaries(db, ids, unseal)), position=position, has_more=len(fresh) > limit)


def _session(
    db: Statements, session: str, tenant: str | None, limit: int, unseal: Seal
) -> list[AnswerSummary]:
    of_tenant = Condition("tenant = ?", (clean(tenant),)) if tenant is not None else Condition()
    wanted = Condition("session = ? AND session != '' AND is_valid = 1", (clean(session),)).and_(of_tenant)
    some = "SELECT id FROM answer_row WHERE session = ? AND session != '' LIMIT ?"
    found = db.execute(
        f"SELECT id FROM answer_row WHERE {wanted.sql} AND id IN ({some}) ORDER BY time_ns, id LIMIT ?",
        (*wanted.values, clean(session), _MOST_OF_SESSION, limit),
    )
    return summaries(db, [number for (number,) in found], unseal)


def _versions(db: Statements, key: AnswerKey, unseal: Seal) -> list[AnswerSummary]:
    """Return the evaluations of an answer and those that supersede each other, though the answer moved."""
    try:
        answer = of_answer(key.trace_id, key.span_id, tenant_in(db, key.tenant))
    except ValueError:
        return []
    waiting = rows_of(db, Condition(f"{answer.sql} LIMIT {MOST_VERSIONS}", answer.values))
    rows = {row["id"]: row for row in waiting}
    while waiting and len(rows) < MOST_VERSIONS:
        linked = [row for row in _linked(db, waiting.pop()) if row["id"] not in rows]
        waiting += linked
        rows.update({row["id"]: row for row in linked})
    ordered = sorted(rows.values(), key=lambda row: (-row["is_valid"], -row["judged_ns"]))
    return summaries(db, [row["id"] for row in ordered], unseal)


def _linked(db: Statements, row: Row) -> list[Row]:
    """Return what a row supersedes, and what supersedes it."""
    beside = Condition("trace_id = ? AND tenant = ?", (row["trace_id"], row["tenant"]))
    after = Condition("supersedes = ? AND supersedes != '' LIMIT 50", (row["carrier"],))
    before = Condition("carrier = ? LIMIT 1", (row["supersedes"],))
    return rows_of(db, beside.and_(after)) + (rows_of(db, beside.and_(before)) if row["supersedes"] else [])


PutT = TypeVar("PutT")

_PUT_AT_ONCE: Final = 500
_MOST_ROWS: Final = 1_000_000


class OwnIndex(AnswerIndex):
    """An index that can also be filled. Threads take turns."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(self._turn)
        self._db = db
        self._lock = threading.Lock()  # one connection, and queries in several threads

    async def add(self, summaries: Iterable[AnswerSummary]) -> int:
        """Add answers, a few at a time, and return how many rows there are then.

        Beyond a million rows, the oldest are forgotten.

        Raises:
            WriteError: its temporary file cannot be written; what was added before is kept.
        """
        waiting = list(summaries)
        for start in range(0, len(waiting), _PUT_AT_ONCE):
            await self._write(put, waiting[start : start + _PUT_AT_ONCE])
        return await asyncio.to_thread(self._settle)

    async def add_sessions(self, sessions: Sequence[SessionSummary]) -> None:
        """Add judged sessions.

        Raises:
            WriteError: its temporary file cannot be written.
        """
        await self._write(put_session, sessions)

    async def aclose(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._db

    async def _write(
        self, put_one: Callable[[sqlite3.Connection, PutT], None], every: Iterable[PutT]
    ) -> None:
        def put_all() -> None:
            with self._writing() as db:
                for each in every:
                    put_one(db, each)

        await asyncio.to_thread(put_all)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, transaction(self._db):
                yield self._db
        except sqlite3.Error as exc:
            raise WriteError(f"the index of answers cannot be written: {exc}") from exc

    def _settle(self) -> int:
        """Keep to the bound, make the sums, and return the number of rows."""
        with self._writing() as db:
            while forget(db, before_ns=0, most_rows=_MOST_ROWS, at_once=_PUT_AT_ONCE):
                pass
            while fold(db, at_once=_PUT_AT_ONCE, is_open=True):
                pass
            return size(db)


def open_index() -> OwnIndex:
    """Open an index that ends with the program."""
    return OwnIndex(open_temporary(INDEX_TABLES))
