"""Searching the rows: a page of a list, found in bounded time.

If few answers can match at all, as an index tells, a search looks at all of them. Otherwise, it goes through
candidates in the order of the list, along an index, until the page is full or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragtrace.answers.index._filter import (
    Condition,
    Place,
    all_of,
    clean,
    counted_of,
    metric_of,
    narrow,
    streams_in,
    times_in,
    times_of,
)
from ragtrace.answers.index.sums import DAY, HOUR_NS, days_with
from ragtrace.answers.port import AnswerFilter, SortBy
from ragtrace.model import Label
from ragtrace.sql import Statements

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
