"""Searching the index, lists by rows and overviews by sums; and an index that a page fills for itself."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeVar

from ragtrace.answers.index import _overview
from ragtrace.answers.index._filter import Condition, all_of, clean, decode, encode, metric_of, streams_in
from ragtrace.answers.index._rows import (
    MOST_VERSIONS,
    POSITIONS,
    Row,
    Seal,
    as_it_is,
    of_answer,
    rows_of,
    summaries,
    tenant_in,
)
from ragtrace.answers.index._search import BY_POSITION, FEW, Search, order_of
from ragtrace.answers.index.sessions import judged_sessions, put_session, session_page
from ragtrace.answers.index.sums import fold
from ragtrace.answers.index.tables import INDEX_TABLES
from ragtrace.answers.index.writes import forget, put, size
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
from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import ReadError, WriteError
from ragtrace.model import Label
from ragtrace.sql import Statements
from ragtrace.sqlite_file import open_temporary, transaction

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
        return await self._read(lambda db: _overview.metrics(db, scope))

    async def trends(
        self, metrics: Sequence[str], scope: TrafficScope, *, period_ns: int
    ) -> Sequence[MetricTrend]:
        """Return metrics over time, in their order. The scope is widened to whole hours.

        Periods are multiples of an hour, counted from 1970.

        Raises:
            ValueError: the period is not a multiple of an hour.
        """
        return await self._read(lambda db: _overview.trends(db, metrics, scope, period_ns=period_ns))

    async def sums(self, scope: TrafficScope) -> Sums:
        """Return a scope in numbers. It is widened to whole hours."""
        return await self._read(lambda db: _overview.sums(db, scope))

    async def quadrant(self, scope: TrafficScope) -> Quadrant | None:
        """Return the quadrant; ``None`` if no answer has both metrics."""
        return await self._read(lambda db: _overview.quadrant(db, scope))

    async def values(self, dimension: str, scope: TrafficScope, *, limit: int = 100) -> Mapping[str, int]:
        """Return the values of a dimension with their number of answers, the most frequent first.

        Raises:
            ValueError: there is no such dimension.
        """
        return await self._read(lambda db: _overview.values(db, dimension, scope, limit=limit))

    async def releases(self, scope: TrafficScope) -> Sequence[Release]:
        """Return the releases of a scope, in order of time."""
        return await self._read(lambda db: _overview.releases(db, scope))

    async def newest_ns(self, scope: TrafficScope) -> int | None:
        """Return the time of the newest answer; ``None`` without any."""
        return await self._read(lambda db: _overview.newest_ns(db, scope))

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
        order = order_of(sort, is_lower_better=_overview.is_lower_better(db, metric_of(chosen)))
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
