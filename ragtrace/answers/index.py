"""Search the index of judged answers, lists by rows and overviews by sums; and one that a page fills."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from ragtrace.answers import sums
from ragtrace.answers.filters import Condition, clean, meeting, metric_of
from ragtrace.answers.index_rows import (
    INDEX_TABLES,
    MOST_VERSIONS,
    POSITIONS,
    Seal,
    as_it_is,
    forget,
    hex_of,
    judged_sessions,
    put,
    put_session,
    rows_of,
    session_page,
    size,
    summaries,
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
    TrendPoint,
)
from ragtrace.answers.summary import AnswerKey, AnswerSummary, SessionSummary
from ragtrace.errors import InputError, ReadError, WriteError
from ragtrace.model import Label
from ragtrace.sql import Db, SqliteDb, open_temporary, transaction

_COLUMNS: Final[Mapping[SortBy, tuple[str, ...]]] = {
    SortBy.NEWEST: ("time_ns",),
    SortBy.OLDEST: ("time_ns",),
    SortBy.WORST: ("score",),
    SortBy.BEST: ("score",),
    SortBy.COST: ("cost_usd",),
    SortBy.DOUBT: ("is_disputed", "doubt"),
    SortBy.SUSPICION: ("suspicion",),
}
_AT_ONCE: Final = 1_000
_LOOKED_BACK: Final = 1_000
"""Rows that may have come after one with a larger number."""

Connect = Callable[[], AbstractContextManager[Db]]
"""Opens the index for reading: what is read inside is of one moment."""
ReadT = TypeVar("ReadT")


class AnswerIndex:
    """Searches judged answers, in threads, while others may write. Superseded evaluations do not count.

    **Errors.** Every method raises ReadError if the index cannot be read, and InputError if a cursor is of no
    list, or a trace id is not hexadecimal.
    """

    def __init__(self, connect: Connect, *, unseal: Seal = as_it_is) -> None:
        self._connect = connect
        self._unseal = unseal

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
        chosen = AnswerFilter(session=session, scope=TrafficScope(tenant=tenant))
        return (await self.page(chosen, sort=SortBy.OLDEST, limit=limit)).answers

    async def sessions(
        self, *, tenant: str | None, label: Label | None = None, after: str | None = None, limit: int = 50
    ) -> SessionPage:
        """Return a page of the sessions of answers, the most recent first.

        With a label, they are those that were judged so as a whole.
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
        """Return metrics over time, in their order. Periods are counted from 1970."""
        return await self._read(
            lambda db: [sums.trend(db, metric, scope, period_ns=period_ns) for metric in metrics]
        )

    async def compared(
        self, metric: str, dimension: str, scope: TrafficScope, *, limit: int
    ) -> Mapping[str, TrendPoint]:
        """Return a metric by the values of a dimension, those with most answers first.

        Raises:
            ValueError: there is no such dimension.
        """
        return await self._read(lambda db: sums.compared(db, metric, dimension, scope, limit=limit))

    async def sums(self, scope: TrafficScope) -> Sums:
        """Return a scope in numbers."""
        return await self._read(lambda db: sums.sums(db, scope))

    async def quadrant(self, scope: TrafficScope) -> Quadrant | None:
        """Return the quadrant; ``None`` if no answer has both metrics."""
        return await self._read(lambda db: sums.quadrant(db, scope))

    async def values(self, dimension: str, scope: TrafficScope, *, limit: int = 100) -> Mapping[str, int]:
        """Return the values of a dimension with their number among the newest 20,000 answers, the most
        frequent first.

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

    async def _read(self, query: Callable[[Db], ReadT]) -> ReadT:
        return await asyncio.to_thread(self._run, query)

    def _run(self, query: Callable[[Db], ReadT]) -> ReadT:
        try:
            with self._connect() as db:
                return query(db)
        except sqlite3.Error as exc:
            raise ReadError(f"the index of answers cannot be read: {exc}") from exc

    def _page(self, db: Db, chosen: AnswerFilter, sort: SortBy, after: str | None, limit: int) -> AnswerPage:
        columns, rows, source = _COLUMNS[sort], meeting(chosen), Condition("answer_row")
        is_descending = sort is not SortBy.OLDEST
        if columns == ("score",):
            metric = metric_of(chosen)
            source = Condition("answer_row JOIN answer_score ON answer = id AND metric = ?", (metric,))
            is_descending = (sort is SortBy.WORST) == sums.is_lower_better(db, metric)
        if sort not in (SortBy.NEWEST, SortBy.OLDEST):
            rows = rows.and_(Condition(f"{columns[0]} IS NOT NULL"))
        place = None if after is None else _place(db, after, columns, source, chosen.scope.tenant)
        found = _found(db, source, rows, columns, place, is_descending=is_descending, limit=limit + 1)
        shown = [row[-1] for row in found[:limit]]
        return AnswerPage(
            answers=tuple(summaries(db, shown, self._unseal)),
            next=str(shown[-1]) if len(found) > limit else None,
        )

    def _random_order(
        self, db: Db, scope: TrafficScope, after: float, limit: int
    ) -> list[tuple[float, AnswerSummary]]:
        rows, place = meeting(AnswerFilter(scope=scope)), (int(after * POSITIONS), 2**62)
        found = _found(db, Condition("answer_row"), rows, ("position",), place, limit=limit)
        told = summaries(db, [number for _, number in found], self._unseal)
        return list(zip((position / POSITIONS for position, _ in found), told, strict=True))


def _found(
    db: Db,
    source: Condition,
    rows: Condition,
    columns: Sequence[str],
    place: Sequence[Any] | None,
    *,
    is_descending: bool = False,
    limit: int,
) -> list[tuple[Any, ...]]:
    """Return the next places of a list: the values that it is ordered by, and the number of the row."""
    order, way = (*columns, "id"), "DESC" if is_descending else "ASC"
    if place is not None:
        marks = ", ".join("?" for _ in place)
        come_after = f"({', '.join(order)}) {'<' if is_descending else '>'} ({marks})"
        rows = rows.and_(Condition(come_after, tuple(place)))
    return db.execute(
        f"SELECT {', '.join(order)} FROM {source.sql} WHERE {rows.sql}"
        f" ORDER BY {', '.join(f'{name} {way}' for name in order)} LIMIT ?",
        (*source.values, *rows.values, limit),
    ).fetchall()


def _place(
    db: Db, cursor: str, columns: Sequence[str], source: Condition, tenant: str | None
) -> tuple[Any, ...]:
    """Return the place of the row that a cursor names."""
    wanted = Condition("id = ?", (int(cursor),) if cursor.isdecimal() and len(cursor) < 19 else (0,)).and_(
        Condition("tenant = ?", (clean(tenant),)) if tenant is not None else Condition()
    )
    found = db.execute(
        f"SELECT {', '.join(columns)}, id FROM {source.sql} WHERE {wanted.sql}",
        (*source.values, *wanted.values),
    ).fetchone()
    if found is None:
        raise InputError("the place in the list cannot be read: begin at the first page")
    return tuple(found)


def _arrivals(
    db: Db, chosen: AnswerFilter, after: frozenset[int] | None, limit: int, unseal: Seal
) -> Arrivals:
    if after is None:
        newest = db.execute("SELECT id FROM answer_row ORDER BY id DESC LIMIT ?", (_LOOKED_BACK,))
        return Arrivals(answers=(), position=frozenset(number for (number,) in newest.fetchall()))
    # with several writers, a row may be seen after one with a larger number
    start = min(after, default=0) if len(after) >= _LOOKED_BACK else 0
    rows = db.execute(
        "SELECT id FROM answer_row WHERE id >= ? ORDER BY id LIMIT ?", (start, _LOOKED_BACK + limit + 1)
    )
    there = [number for (number,) in rows.fetchall()]
    fresh = [number for number in there if number not in after]
    came = fresh[:limit]
    known = after.union(came)
    among = Condition(f"id IN ({', '.join('?' for _ in came)})", tuple(came))
    wanted = sorted(row["id"] for row in rows_of(db, meeting(chosen).and_(among))) if came else []
    return Arrivals(
        answers=tuple(summaries(db, wanted, unseal)),
        position=frozenset([number for number in there if number in known][-_LOOKED_BACK:]),
        has_more=len(fresh) > limit,
    )


def _versions(db: Db, key: AnswerKey, unseal: Seal) -> list[AnswerSummary]:
    """Return the evaluations of an answer and those that supersede each other, though the answer moved."""
    try:
        trace_id, span_id = hex_of(key.trace_id, 32), hex_of(key.span_id, 16)
    except ValueError:
        return []
    of_trace = (trace_id, clean(key.tenant), MOST_VERSIONS)
    rows = rows_of(db, Condition("trace_id = ? AND tenant = ? LIMIT ?", of_trace))
    found = [row for row in rows if row["span_id"] == span_id]
    for row in found:  # it grows
        linked = (row["carrier"], row["supersedes"])
        found += [
            each
            for each in rows
            if each not in found and (each["carrier"] == linked[1] or each["supersedes"] == linked[0])
        ]
    ordered = sorted(found, key=lambda row: (-row["is_valid"], -row["judged_ns"]))
    return summaries(db, [row["id"] for row in ordered], unseal)


PutT = TypeVar("PutT")

_PUT_AT_ONCE: Final = 500
_MOST_ROWS: Final = 1_000_000


class OwnIndex(AnswerIndex):
    """An index that can also be filled. Threads take turns."""

    def __init__(self, db: SqliteDb) -> None:
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
    def _turn(self) -> Iterator[SqliteDb]:
        with self._lock:
            yield self._db

    async def _write(self, put_one: Callable[[SqliteDb, PutT], None], every: Iterable[PutT]) -> None:
        def put_all() -> None:
            with self._writing() as db:
                for each in every:
                    put_one(db, each)

        await asyncio.to_thread(put_all)

    @contextmanager
    def _writing(self) -> Iterator[SqliteDb]:
        try:
            with self._lock, transaction(self._db):
                yield self._db
        except sqlite3.Error as exc:
            raise WriteError(f"the index of answers cannot be written: {exc}") from exc

    def _settle(self) -> int:
        """Keep to the bound, and return the number of rows."""
        with self._writing() as db:
            while forget(db, before_ns=0, most_rows=_MOST_ROWS, at_once=_PUT_AT_ONCE):
                pass
            return size(db)


def open_index() -> OwnIndex:
    """Open an index that ends with the program."""
    return OwnIndex(open_temporary(INDEX_TABLES))
