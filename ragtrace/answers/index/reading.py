"""Searching the index: lists by rows, overviews by sums."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from ragtrace.answers.index import _overview
from ragtrace.answers.index._conditions import conditions_of
from ragtrace.answers.index._cursor import Place, decode, encode
from ragtrace.answers.index._rows import (
    POSITIONS,
    IndexRow,
    Seal,
    as_it_is,
    packed_session,
    rows_of,
    select,
    session_hash,
    summary_of_row,
    versions_of,
)
from ragtrace.answers.index._search import BY_POSITION, FEW, Found, Search, order_of
from ragtrace.answers.index._words import Kind, find_word, streams, words
from ragtrace.answers.index.sessions import judged_sessions, session_page
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
from ragtrace.errors import ReadError
from ragtrace.model import Label

Connect = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Opens the index for reading: what is read inside is of one moment."""

_LIMIT_S: Final = 0.12
_AT_ONCE: Final = 1_000
_MOST_OF_SESSION: Final = 20_000

ReadT = TypeVar("ReadT")


class SqliteAnswerIndex:
    """An [`AnswerIndex`][ragtrace.answers.port.AnswerIndex] that reads in threads while another may write."""

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
        """Return a page of a list. ``chosen.text`` is ignored: the index has no text.

        Raises:
            InputError: the cursor is not one of this filter and order, or a trace id is not hexadecimal.
            ReadError: the index cannot be read.
        """
        place = None if after is None else decode(after, chosen, sort)
        return await self._read(lambda db: self._page(db, chosen, sort, place, limit))

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

    async def arrivals(self, chosen: AnswerFilter, *, after: int | None = None, limit: int = 500) -> Arrivals:
        """Return the valid evaluations that came after a position; without one, only the position now.

        Raises:
            InputError: a trace id is not hexadecimal.
            ReadError: the index cannot be read.
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

        Raises:
            InputError: the cursor is none.
            ReadError: the index cannot be read.
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

    async def trend(self, metric: str, scope: TrafficScope, *, period_ns: int) -> MetricTrend:
        """Return a metric over time. The scope is widened to whole hours.

        Raises:
            ValueError: the period is not a multiple of an hour.
            ReadError: the index cannot be read.
        """
        return await self._read(lambda db: _overview.trend(db, metric, scope, period_ns=period_ns))

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
            ReadError: the index cannot be read.
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
        """Return the next answers in random order, with their positions in [0, 1)."""
        return await self._read(lambda db: self._random_order(db, scope, after, limit))

    async def _read(self, query: Callable[[sqlite3.Connection], ReadT]) -> ReadT:
        return await asyncio.to_thread(self._run, query)

    def _run(self, query: Callable[[sqlite3.Connection], ReadT]) -> ReadT:
        try:
            with self._connect() as db:
                return query(db)
        except sqlite3.Error as exc:
            raise ReadError(f"the index of answers cannot be read: {exc}") from exc

    def _page(
        self, db: sqlite3.Connection, chosen: AnswerFilter, sort: SortBy, after: Place | None, limit: int
    ) -> AnswerPage:
        wanted = conditions_of(db, chosen)
        order = order_of(sort, is_lower_better=_overview.is_lower_better(db, wanted.metric))
        search = Search(db=db, wanted=wanted, scope=chosen.scope, order=order, few=self._few)
        deadline = time.monotonic() + self._limit_s
        found = search.find(after, limit=limit, is_over=lambda: time.monotonic() >= deadline)
        is_by_time = sort in (SortBy.NEWEST, SortBy.OLDEST)
        return AnswerPage(
            answers=tuple(_summaries(db, found, self._unseal)),
            next=None if found.more is None else encode(found.more, chosen, sort),
            is_cut=found.is_cut,
            searched_to_ns=found.more.key if found.is_cut and found.more and is_by_time else None,
        )

    def _random_order(
        self, db: sqlite3.Connection, scope: TrafficScope, after: float, limit: int
    ) -> list[tuple[float, AnswerSummary]]:
        wanted = conditions_of(db, AnswerFilter(scope=scope))
        search = Search(db=db, wanted=wanted, scope=scope, order=BY_POSITION, few=self._few)
        start = Place(int(after * POSITIONS), 2**62) if after >= 0 else None
        found = search.find(start, limit=limit, is_over=lambda: False)
        positions = (place.key / POSITIONS for place in found.places)
        return list(zip(positions, _summaries(db, found, self._unseal), strict=True))


def _arrivals(
    db: sqlite3.Connection, chosen: AnswerFilter, after: int | None, limit: int, unseal: Seal
) -> Arrivals:
    wanted = conditions_of(db, chosen)
    (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM answer_row").fetchone()
    if after is None or newest < after:  # the newest may have been forgotten, and its number is given again
        return Arrivals(answers=(), position=newest)
    came = [row for (row,) in db.execute(_CAME, (after, limit))]
    of_row = wanted.all_of_row()
    # the plus keeps the database from going through an index of all rows
    among = select(f"id IN ({', '.join('?' for _ in came)}) AND +({of_row.sql}) ORDER BY id")
    rows = [
        row
        for row in rows_of(db.execute(among, (*came, *of_row.values)))
        if wanted.since_ns <= row.time_ns < wanted.until_ns and wanted.keeps(row.metrics)
    ]
    position = came[-1] if came else after
    return Arrivals(answers=tuple(_told(db, rows, unseal)), position=position, has_more=position < newest)


_CAME: Final = "SELECT id FROM answer_row WHERE id > ? ORDER BY id LIMIT ?"


def _summaries(db: sqlite3.Connection, found: Found, unseal: Seal) -> list[AnswerSummary]:
    marks = ", ".join("?" for _ in found.places)
    rows = rows_of(db.execute(select(f"id IN ({marks})"), [place.row for place in found.places]))
    by_id = {row.id: row for row in rows}
    return _told(db, [by_id[place.row] for place in found.places], unseal)


def _told(db: sqlite3.Connection, rows: Sequence[IndexRow], unseal: Seal) -> list[AnswerSummary]:
    names, known = words(db), streams(db)
    return [summary_of_row(row, names, known, unseal) for row in rows]


def _session(
    db: sqlite3.Connection, session: str, tenant: str | None, limit: int, unseal: Seal
) -> list[AnswerSummary]:
    number = None if tenant is None else find_word(db, Kind.TENANT, tenant)
    if not session or (tenant is not None and number is None):
        return []
    first = "SELECT id FROM answer_row WHERE session_hash = ?1 LIMIT ?3"
    of_tenant = "(?4 IS NULL OR (SELECT tenant FROM answer_stream WHERE id = stream) = ?4)"
    condition = f"session_hash = ?1 AND session = ?2 AND is_valid = 1 AND {of_tenant} AND id IN ({first})"
    values = (session_hash(session), packed_session(session), _MOST_OF_SESSION, number, limit)
    return _told(
        db, rows_of(db.execute(select(f"{condition} ORDER BY time_ns, id LIMIT ?5"), values)), unseal
    )


def _versions(db: sqlite3.Connection, key: AnswerKey, unseal: Seal) -> list[AnswerSummary]:
    """Return the evaluations of an answer and those that supersede each other, though the answer moved."""
    tenant = find_word(db, Kind.TENANT, key.tenant)
    try:
        known = [] if tenant is None else versions_of(db, key, tenant=tenant)
    except ValueError:
        return []
    rows = {row.id: row for row in known}
    waiting = list(known)
    while waiting and len(rows) < _MOST_VERSIONS:
        row = waiting.pop()
        for other in _linked(db, row):
            if other.id not in rows:
                rows[other.id] = other
                waiting.append(other)
    ordered = sorted(rows.values(), key=lambda row: (-row.is_valid, -(row.time_ns + row.judged_after_ns)))
    return _told(db, ordered, unseal)


def _linked(db: sqlite3.Connection, row: IndexRow) -> list[IndexRow]:
    """Return what a row supersedes, and what supersedes it."""
    beside = f"trace_low = ? AND trace_high = ? AND {_TENANT_OF.format('stream')} = {_TENANT_OF.format('?')}"
    place = (row.trace_low, row.trace_high, row.stream)
    after = rows_of(db.execute(select(f"{beside} AND supersedes = ? LIMIT 50"), (*place, row.carrier)))
    if row.supersedes is None:
        return after
    before = select(f"{beside} AND is_alone IN (0, 1) AND carrier = ? LIMIT 1")
    return after + rows_of(db.execute(before, (*place, row.supersedes)))


_TENANT_OF: Final = "(SELECT tenant FROM answer_stream WHERE id = {})"
_MOST_VERSIONS: Final = 256
