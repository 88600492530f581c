"""Searching the rows: a page of a list, found in bounded time.

A search goes through candidates in the order of the list, along an index, until the page is full or its time
is over. If few answers can match at all, as the sums or an index tell, it looks at all of them instead.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from ragtrace.answers.index._conditions import Conditions, SqlCondition
from ragtrace.answers.index._cursor import Place
from ragtrace.answers.index._overview import answers_in
from ragtrace.answers.index._rows import HOUR_NS, metric_in
from ragtrace.answers.index._scope import listed
from ragtrace.answers.index._sums import DAY
from ragtrace.answers.port import SortBy, TrafficScope

FEW: Final = 8_000
"""So many candidates are looked at and sorted in well under the limit."""
_FEW_STREAMS: Final = 200
_DENSE: Final = 0.3
"""A scope with this share of all answers is searched along the time of all."""
_LOOKS_BETWEEN: Final = 64


class Candidate(NamedTuple):
    """A row that may match."""

    key: int | None
    """Its place in the order: a time, score, cost or random position."""
    row: int
    meets: int
    """Whether the conditions in SQL hold."""
    metrics: bytes

    @property
    def place(self) -> Place:
        """Where it is in the list."""
        return Place(self.key or 0, self.row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of rows."""

    column: str
    """``time_ns``, ``score``, ``cost``, ``doubt``, ``suspicion`` or ``position``."""
    is_descending: bool

    def after(self, place: Place | None) -> SqlCondition:
        """Return the condition to come after a place."""
        row = "answer_row.id" if self.column != "score" else "answer_score.id"
        if place is None:
            return SqlCondition(sql="1")
        sign = "<" if self.is_descending else ">"
        return SqlCondition(sql=f"({self.column}, {row}) {sign} (?, ?)", values=place)

    @property
    def sql(self) -> str:
        """The words after ``ORDER BY``."""
        row = "answer_row.id" if self.column != "score" else "answer_score.id"
        way = "DESC" if self.is_descending else "ASC"
        return f"{self.column} {way}, {row} {way}"


class Found(NamedTuple):
    """What a search found."""

    places: list[Place]
    more: Place | None
    """Where to go on; ``None`` at the end."""
    is_cut: bool


def order_of(sort: SortBy, *, is_lower_better: bool) -> Order:
    """Return the order of rows that a list has."""
    if sort in (SortBy.COST, SortBy.DOUBT, SortBy.SUSPICION):
        return Order(column=sort.value, is_descending=True)
    if sort in (SortBy.WORST, SortBy.BEST):
        return Order(column="score", is_descending=(sort is SortBy.WORST) == is_lower_better)
    return Order(column="time_ns", is_descending=sort is SortBy.NEWEST)


BY_POSITION: Final = Order(column="position", is_descending=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One list, in one transaction."""

    db: sqlite3.Connection
    wanted: Conditions
    scope: TrafficScope
    order: Order
    few: int = FEW

    def find(self, after: Place | None, *, limit: int, is_over: Callable[[], bool]) -> Found:
        """Return the next places of the list, at most ``limit``; fewer only at the end or if time is over."""
        few = self._few()
        if few is not None:
            return self._among(few, after, limit)
        return self._along(self._candidates(after), limit, is_over)

    def _few(self) -> SqlCondition | None:
        """Return the condition that leaves few candidates, if there is one."""
        if self.wanted.streams == []:
            return SqlCondition(sql="0")
        for condition in (*self.wanted.narrow, *self._of_scores()):
            if self._count(condition) <= self.few:
                return condition
        if self._in_scope() <= self.few:
            streams, values = listed(self.wanted.streams)
            times = (self.wanted.since_ns, self.wanted.until_ns)
            return SqlCondition(sql=f"{streams} AND time_ns >= ? AND time_ns < ?", values=(*values, *times))
        return None

    def _of_scores(self) -> Iterator[SqlCondition]:
        """Yield the condition to be among the scores that are wanted."""
        low, high = self.wanted.low, self.wanted.high
        if low is None and high is None:
            return
        scores = (
            "SELECT id FROM answer_score WHERE metric = ? AND label IN (0, 1, 2, 3)"
            " AND score >= ? AND score <= ? LIMIT ?"
        )
        values = (self.wanted.metric, *self._score_range(), self.few + 1)
        yield SqlCondition(sql=f"id IN ({scores})", values=values)

    def _score_range(self) -> tuple[int, int]:
        low, high = self.wanted.low, self.wanted.high
        return -1 if low is None else low, 2**40 if high is None else high

    def _count(self, condition: SqlCondition) -> int:
        query = f"SELECT count(*) FROM (SELECT 1 FROM answer_row WHERE {condition.sql} LIMIT ?)"
        (found,) = self.db.execute(query, (*condition.values, self.few + 1)).fetchone()
        return int(found)

    def _in_scope(self) -> int:
        return answers_in(self.db, self.scope)

    def _among(self, few: SqlCondition, after: Place | None, limit: int) -> Found:
        """Look at all of a few candidates, and sort those that match."""
        meets = self._meets()
        column = "0" if self.order.column == "score" else self.order.column
        candidates = self._rows(
            f"SELECT {column}, id, 1, metrics FROM answer_row WHERE {few.sql} AND {meets.sql}",
            (*few.values, *meets.values),
        )
        matching = (
            self._place(candidate) for candidate in candidates if self.wanted.keeps(candidate.metrics)
        )
        rest = (place for place in matching if place and (after is None or self._is_after(place, after)))
        choose = heapq.nlargest if self.order.is_descending else heapq.nsmallest
        return _page(choose(limit + 1, rest), limit)

    def _place(self, candidate: Candidate) -> Place | None:
        if self.order.column != "score":
            return None if candidate.key is None else candidate.place
        found = metric_in(candidate.metrics, self.wanted.metric)
        return None if found is None or found.score is None else Place(found.score, candidate.row)

    def _is_after(self, place: Place, after: Place) -> bool:
        return place < after if self.order.is_descending else place > after

    def _along(self, candidates: Iterable[Candidate], limit: int, is_over: Callable[[], bool]) -> Found:
        """Go through candidates in order, until the page is full or time is over."""
        places: list[Place] = []
        for number, candidate in enumerate(candidates, 1):
            if candidate.meets and self.wanted.keeps(candidate.metrics):
                places.append(candidate.place)
                if len(places) > limit:
                    break
            if number % _LOOKS_BETWEEN == 0 and is_over():
                is_full = len(places) >= limit
                return Found(places, candidate.place, is_cut=not is_full)
        return _page(places, limit)

    def _candidates(self, after: Place | None) -> Iterator[Candidate]:
        if self.order.column == "score":
            return self._by_score(after)
        if self.order.column == "time_ns":
            return self._by_time(after)
        meets = self._meets()
        valid = _INDEXED.get(self.order.column, "")
        place = self.order.after(after)
        return self._rows(
            f"SELECT {self.order.column}, id, {meets.sql}, metrics FROM answer_row"
            f" WHERE {place.sql}{valid} ORDER BY {self.order.sql}",
            (*meets.values, *place.values),
        )

    def _meets(self) -> SqlCondition:
        condition = self.wanted.all_of_row()
        return SqlCondition(
            sql=f"(+time_ns >= ? AND +time_ns < ? AND {condition.sql})",  # the sign: by another index
            values=(self.wanted.since_ns, self.wanted.until_ns, *condition.values),
        )

    def _by_score(self, after: Place | None) -> Iterator[Candidate]:
        labels = range(4) if self.wanted.metric_label is None else (self.wanted.metric_label,)
        meets, place = self._meets(), self.order.after(after)
        query = (
            f"SELECT score, answer_score.id, {meets.sql}, metrics"
            " FROM answer_score CROSS JOIN answer_row ON answer_row.id = answer_score.id"
            " WHERE answer_score.metric = ? AND answer_score.label = ? AND score >= ? AND score <= ?"
            f" AND {place.sql} ORDER BY {self.order.sql}"
        )
        within = self._score_range()
        found = [
            self._rows(query, (*meets.values, self.wanted.metric, label, *within, *place.values))
            for label in labels
        ]
        return heapq.merge(*found, key=_place, reverse=self.order.is_descending)

    def _by_time(self, after: Place | None) -> Iterator[Candidate]:
        is_sparse = self._is_sparse()
        for since_ns, until_ns in self._times(after):
            yield from self._within(since_ns, until_ns, after, is_sparse=is_sparse)
            last = Place(since_ns, -(2**62)) if self.order.is_descending else Place(until_ns - 1, 2**62)
            yield Candidate(*last, 0, b"")  # a place to go on from, though nothing is there

    def _within(
        self, since_ns: int, until_ns: int, after: Place | None, *, is_sparse: bool
    ) -> Iterator[Candidate]:
        meets, place = self.wanted.all_of_row(), self.order.after(after)
        query = f"SELECT time_ns, id, {meets.sql}, metrics FROM answer_row"
        times = f"time_ns >= ? AND time_ns < ? AND {place.sql} ORDER BY {self.order.sql}"
        values = (since_ns, until_ns, *place.values)
        feedback = next((each for each in self.wanted.narrow if each.sql.startswith("feedback")), None)
        if feedback is not None:
            query = f"{query} WHERE {feedback.sql} AND feedback > 0 AND {times}"
            return self._rows(query, (*meets.values, *feedback.values, *values))
        if not is_sparse:
            return self._rows(f"{query} WHERE {times}", (*meets.values, *values))
        found = [
            self._rows(
                f"{query} WHERE stream = ? AND is_valid = 1 AND {times}", (*meets.values, stream, *values)
            )
            for stream in self.wanted.streams or ()
        ]
        return heapq.merge(*found, key=_place, reverse=self.order.is_descending)

    def _is_sparse(self) -> bool:
        """Return whether the scope's streams are better searched one by one."""
        streams = self.wanted.streams
        if streams is None or len(streams) > _FEW_STREAMS:
            return False
        everything = replace(self.scope, tenant=None, service=None, model=None, prompt_version=None)
        return self._in_scope() < _DENSE * answers_in(self.db, everything)

    def _times(self, after: Place | None) -> Iterator[tuple[int, int]]:
        """Yield the ranges of time that can have a match, in the order of the list."""
        since_ns, until_ns = self.wanted.since_ns, self.wanted.until_ns
        if after is not None and self.order.is_descending:
            until_ns = min(until_ns, after.key + 1)
        elif after is not None:
            since_ns = max(since_ns, after.key)
        if not self._hour_conditions():
            yield since_ns, until_ns
            return
        for day in self._hours_with(DAY, since_ns // HOUR_NS - DAY, until_ns // HOUR_NS + 1):
            for hour in self._hours_with(1, day, day + DAY):
                yield max(since_ns, hour * HOUR_NS), min(until_ns, (hour + 1) * HOUR_NS)

    def _hour_conditions(self) -> list[tuple[str, SqlCondition]]:
        """Return conditions on tables of sums, each of which an hour with a match meets."""
        found = [("answer_sums", condition) for condition in self.wanted.sums]
        if self.wanted.blame is not None:
            found.append(("answer_word_sums", SqlCondition(sql="word = ?", values=(self.wanted.blame,))))
        label = self.wanted.metric_label
        if label is not None:
            column = ("passed", "failed", "error", "skipped")[label]
            condition = SqlCondition(sql=f"metric = ? AND {column} > 0", values=(self.wanted.metric,))
            found.append(("answer_metric_sums", condition))
        return found

    def _hours_with(self, hours: int, first: int, end: int) -> list[int]:
        streams, values = listed(self.wanted.streams)
        queries, given = [], list[object]()
        for table, condition in self._hour_conditions():
            queries.append(
                f"SELECT first_hour FROM {table} WHERE hours = ? AND first_hour >= ? AND first_hour < ?"
                f" AND {condition.sql} AND {streams}"
            )
            given += [hours, first, end, *condition.values, *values]
        found = self.db.execute(" INTERSECT ".join(queries), given)
        return sorted((hour for (hour,) in found), reverse=self.order.is_descending)

    def _rows(self, query: str, values: tuple[object, ...]) -> Iterator[Candidate]:
        return map(Candidate._make, self.db.execute(query, values))


_INDEXED: Final = {
    "cost": " AND is_valid = 1 AND cost IS NOT NULL",
    "doubt": " AND is_valid = 1",
    "suspicion": " AND is_valid = 1 AND suspicion IS NOT NULL",
}
"""What the rows of these indexes have in common."""


def _place(candidate: Candidate) -> Place:
    return candidate.place


def _page(places: list[Place], limit: int) -> Found:
    shown = list(islice(places, limit))
    return Found(shown, shown[-1] if len(places) > limit else None, is_cut=False)
