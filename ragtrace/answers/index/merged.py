"""Several indexes as one: each trace is in one of them, and so are the spans of a judged session."""

from __future__ import annotations

import heapq
import struct
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ragtrace.answers.index._cursor import MergedPlace, Place, decode_merged, encode_merged
from ragtrace.answers.index._overview import (
    VERDICTS,
    check_dimension,
    most_frequent,
    period_hours,
    trend_of,
)
from ragtrace.answers.index._rows import DOLLARS, LABELS
from ragtrace.answers.index._search import order_of
from ragtrace.answers.index.parts import IndexPart, PlacedPage, TrendSums, ask_each
from ragtrace.answers.index.sessions import MOST_UNDER_ID, session_place
from ragtrace.answers.port import (
    AnswerFilter,
    AnswerPage,
    Arrivals,
    MetricTrend,
    Quadrant,
    SessionPage,
    SortBy,
    Sums,
    TrafficScope,
)
from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerKey, AnswerSummary, first_faithfulness
from ragtrace.errors import InputError
from ragtrace.model import Label

FoundT = TypeVar("FoundT")

_AT_ONCE: Final = 1_000
_AT_LEAST: Final = 100
_FIRST: Final = "faithfulness"
_POSITION: Final = struct.Struct(">Iq")
_MARK: Final = b"\1"


class MergedAnswerIndex:
    """An [`AnswerIndex`][ragtrace.answers.port.AnswerIndex] over several that may come and go.

    It says what one index of all their answers would say. Each part is read at a moment of its own. Equal
    keys of a list are in the order of the parts' numbers. Bounds hold for each part: of names, say.
    """

    def __init__(
        self, parts: Callable[[], Mapping[int, IndexPart]], *, part_of: Callable[[str], int] | None = None
    ) -> None:
        """Read what ``parts`` returns at that moment, by number: a part keeps its number, which cursors name.

        ``part_of`` says which part has a trace, by the trace's id; without it, all are asked for one.
        """
        self._parts = parts
        self._part_of = part_of

    async def page(
        self, chosen: AnswerFilter, *, sort: SortBy = SortBy.NEWEST, after: str | None = None, limit: int = 50
    ) -> AnswerPage:
        """Return a page of a list. Its cursor holds though parts come or go.

        Raises:
            InputError: the cursor is not one of this filter and order, or a trace id is not hexadecimal.
            ReadError: a part cannot be read.
        """
        place = None if after is None else decode_merged(after, chosen, sort)
        parts = self._asked(chosen)
        read = await self._list(chosen, sort, parts=len(parts))
        found = await ask_each(parts.items(), lambda each: read.page(*each, after=place, limit=limit))
        merged = _merged(found, limit=limit, is_descending=read.is_descending)
        is_by_time = sort in (SortBy.NEWEST, SortBy.OLDEST)
        return AnswerPage(
            answers=merged.answers,
            next=None if merged.more is None else encode_merged(merged.more, chosen, sort),
            is_cut=merged.is_cut,
            searched_to_ns=merged.more.key if merged.is_cut and merged.more and is_by_time else None,
        )

    async def every(
        self, chosen: AnswerFilter, *, sort: SortBy = SortBy.NEWEST
    ) -> AsyncIterator[AnswerSummary]:
        """Yield all answers of a list, for an export; those that come meanwhile may be among them."""
        parts = self._asked(chosen)
        read = await self._list(chosen, sort, parts=len(parts))
        at_once = max(_AT_LEAST, _AT_ONCE // max(1, len(parts)))
        ahead = [_ReadAhead(partial(read.page, *each, limit=at_once)) for each in parts.items()]
        sign = -1 if read.is_descending else 1
        waiting: list[_Next] = []
        for source in await ask_each(ahead, _ReadAhead.filled):
            source.push(waiting, sign)
        while waiting:
            _, answer, source = heapq.heappop(waiting)
            yield answer
            (await source.filled()).push(waiting, sign)

    async def arrivals(self, chosen: AnswerFilter, *, after: int | None = None, limit: int = 500) -> Arrivals:
        """Return the valid evaluations that came after a position; without one, only the position now.

        Those of a part are in the order in which they came, and those of several about in the order of
        judging. A position is one of each part, in one number. A part that is new to it begins now; one that
        comes back goes on where it was. The parts share ``limit``, but each may give one.

        Raises:
            InputError: a trace id is not hexadecimal.
            ReadError: a part cannot be read.
        """
        parts = self._parts()
        known = _positions(after)
        share = max(1, limit // max(1, len(parts)))

        async def ask(number: int, part: IndexPart) -> Arrivals:
            start = 0 if after == 0 else known.get(number)
            return await part.arrivals(chosen, after=start, limit=share)

        found = await ask_each(parts.items(), lambda each: ask(*each))
        positions = known | {number: part.position for number, part in zip(parts, found, strict=True)}
        answers = heapq.merge(*(part.answers for part in found), key=_judged)
        return Arrivals(
            answers=tuple(answers),
            position=_position(positions),
            has_more=any(part.has_more for part in found),
        )

    async def versions(self, key: AnswerKey) -> Sequence[AnswerSummary]:
        """Return the evaluations of an answer, the valid one first, then the newest."""
        owners = self._owners(key.trace_id).values()
        return _joined(await ask_each(owners, lambda part: part.versions(key)))

    async def session(self, session: str, *, tenant: str | None, limit: int = 100) -> Sequence[AnswerSummary]:
        """Return the first answers of a session in the order of time."""
        found = await self._each(lambda part: part.session(session, tenant=tenant, limit=limit))
        return list(heapq.merge(*found, key=lambda answer: answer.time_ns))[:limit]

    async def sessions(
        self, *, tenant: str | None, label: Label | None = None, after: str | None = None, limit: int = 50
    ) -> SessionPage:
        """Return a page of the judged sessions, the newest first, without those that were revised.

        Raises:
            InputError: the cursor is none.
            ReadError: a part cannot be read.
        """
        place = None if after is None else MergedPlace(*session_place(after, numbers=3))

        async def ask(number: int, part: IndexPart) -> list[tuple[MergedPlace, SessionSummary]]:
            before = None if place is None else place.within(number)
            rows = await part.placed_sessions(tenant=tenant, label=label, before=before, limit=limit + 1)
            return [(_merged_place(number, row.place), row.session) for row in rows]

        found = await ask_each(self._parts().items(), lambda each: ask(*each))
        ordered = sorted(_joined(found), key=lambda row: row[0], reverse=True)
        shown = ordered[:limit]
        is_more = len(ordered) > limit
        return SessionPage(
            sessions=tuple(session for _, session in shown),
            next="-".join(map(str, shown[-1][0])) if is_more else None,
        )

    async def judged_sessions(self, session: str, *, tenant: str | None) -> Sequence[SessionSummary]:
        """Return the judged sessions under an id, the newest first."""
        found = await self._each(lambda part: part.judged_sessions(session, tenant=tenant))
        ordered = heapq.merge(*found, key=lambda each: each.time_ns, reverse=True)
        return list(ordered)[:MOST_UNDER_ID]

    async def metrics(self, scope: TrafficScope) -> Sequence[str]:
        """Return the names of the metrics that occur, ``faithfulness`` first."""
        found = await self._each(lambda part: part.metrics(scope))
        return sorted(set(_joined(found)), key=first_faithfulness)

    async def trend(self, metric: str, scope: TrafficScope, *, period_ns: int) -> MetricTrend:
        """Return a metric over time. The scope is widened to whole hours.

        Raises:
            ValueError: the period is not a multiple of an hour.
            ReadError: a part cannot be read.
        """
        period_hours(period_ns)
        found = await self._each(lambda part: part.trend_sums(metric, scope, period_ns=period_ns))
        return trend_of(TrendSums.of_all(found), metric, scope, period_ns=period_ns)

    async def sums(self, scope: TrafficScope) -> Sums:
        """Return a scope in numbers. It is widened to whole hours."""
        found = await self._each(lambda part: part.sums(scope))
        labels = _added(part.labels for part in found)
        verdicts = _added(part.verdicts for part in found)
        return Sums(
            answers=sum(part.answers for part in found),
            labels={label: labels[label] for label in LABELS if labels[label]},
            verdicts={verdict: verdicts[verdict] for verdict in VERDICTS if verdicts[verdict]},
            blames=dict(_added(part.blames for part in found).most_common()),
            reasons=dict(_added(part.reasons for part in found).most_common()),
            cost_usd=sum(round(part.cost_usd * DOLLARS) for part in found) / DOLLARS,
            unpriced=sum(part.unpriced for part in found),
        )

    async def quadrant(self, scope: TrafficScope) -> Quadrant | None:
        """Return the quadrant; ``None`` if no answer has both metrics."""
        found = [part for part in await self._each(lambda part: part.quadrant(scope)) if part is not None]
        if not found:
            return None
        return Quadrant(
            healthy=sum(part.healthy for part in found),
            generation_problem=sum(part.generation_problem for part in found),
            retrieval_noise=sum(part.retrieval_noise for part in found),
            retrieval_failure=sum(part.retrieval_failure for part in found),
        )

    async def values(self, dimension: str, scope: TrafficScope, *, limit: int = 100) -> Mapping[str, int]:
        """Return the values of a dimension with their number of answers, the most frequent first.

        Raises:
            ValueError: there is no such dimension.
            ReadError: a part cannot be read.
        """
        check_dimension(dimension)
        # a value that is rare in each part may be frequent in all, so every part tells all of its own
        found = await self._each(lambda part: part.values(dimension, scope, limit=sys.maxsize))
        return most_frequent(_added(found), limit)

    async def newest_ns(self, scope: TrafficScope) -> int | None:
        """Return the time of the newest answer; ``None`` without any."""
        found = await self._each(lambda part: part.newest_ns(scope))
        return max((time_ns for time_ns in found if time_ns is not None), default=None)

    async def random_order(
        self, scope: TrafficScope, *, after: float, limit: int
    ) -> Sequence[tuple[float, AnswerSummary]]:
        """Return the next answers in random order, with their positions in [0, 1)."""
        parts = self._parts()
        found = await ask_each(
            parts.values(),
            lambda part: part.random_order(scope, after=after, limit=limit, parts=len(parts)),
        )
        return list(heapq.merge(*found, key=lambda placed: placed[0]))[:limit]

    async def _each(self, ask: Callable[[IndexPart], Coroutine[Any, Any, FoundT]]) -> list[FoundT]:
        return await ask_each(self._parts().values(), ask)

    def _owners(self, trace_id: str) -> Mapping[int, IndexPart]:
        """Return the part that has a trace; all without a rule, and none if it is not here."""
        parts = self._parts()
        if self._part_of is None:
            return parts
        owner = self._part_of(trace_id)
        return {owner: parts[owner]} if owner in parts else {}

    def _asked(self, chosen: AnswerFilter) -> Mapping[int, IndexPart]:
        is_whole = chosen.trace_id is not None and len(chosen.trace_id) == _TRACE_DIGITS
        return self._owners(chosen.trace_id.lower()) if is_whole and chosen.trace_id else self._parts()

    async def _list(self, chosen: AnswerFilter, sort: SortBy, *, parts: int) -> _List:
        """Return how to read a list: parts without a score of a metric do not know which is the worst."""
        is_lower_better = False
        if sort in (SortBy.WORST, SortBy.BEST):
            metric = chosen.metric or _FIRST
            is_lower_better = any(await self._each(lambda part: part.is_lower_better(metric)))
        return _List(chosen=chosen, sort=sort, is_lower_better=is_lower_better, parts=parts)


_TRACE_DIGITS: Final = 32


class _MergedAnswer(NamedTuple):
    place: MergedPlace
    answer: AnswerSummary


class _PartPage(NamedTuple):
    """A page of one part, with places in the merged list."""

    answers: list[_MergedAnswer]
    more: MergedPlace | None


class _MergedPage(NamedTuple):
    answers: tuple[AnswerSummary, ...]
    more: MergedPlace | None
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """One list of answers, and how each part is asked for it."""

    chosen: AnswerFilter
    sort: SortBy
    is_lower_better: bool
    parts: int
    """How many are asked."""

    @property
    def is_descending(self) -> bool:
        return order_of(self.sort, is_lower_better=self.is_lower_better).is_descending

    async def page(self, number: int, part: IndexPart, *, after: MergedPlace | None, limit: int) -> _PartPage:
        found: PlacedPage = await part.placed(
            self.chosen,
            sort=self.sort,
            after=None if after is None else after.within(number),
            limit=limit,
            is_lower_better=self.is_lower_better,
            parts=self.parts,
        )
        return _PartPage(
            [_MergedAnswer(_merged_place(number, place), answer) for place, answer in found.answers],
            None if found.more is None else _merged_place(number, found.more),
        )


def _merged(pages: Sequence[_PartPage], *, limit: int, is_descending: bool) -> _MergedPage:
    """Merge pages of the parts. What is behind the place that a part was searched to is not known yet."""
    answers = sorted(_joined(page.answers for page in pages), key=_place, reverse=is_descending)
    bounds = [page.more for page in pages if page.more is not None]
    if not bounds:
        shown = answers[:limit]
        is_more = len(answers) > limit
        return _MergedPage(_answers(shown), shown[-1].place if is_more else None)
    bound = max(bounds) if is_descending else min(bounds)
    known = [each for each in answers if (each.place >= bound if is_descending else each.place <= bound)]
    shown = known[:limit]
    is_full = len(shown) >= limit
    return _MergedPage(_answers(shown), shown[-1].place if is_full and shown else bound, not is_full)


@dataclass(slots=True, eq=False)
class _ReadAhead:
    """Reads the list of one part, a page at a time."""

    read: Callable[..., Coroutine[Any, Any, _PartPage]]
    answers: deque[_MergedAnswer] = field(default_factory=deque)
    more: MergedPlace | None = None
    is_over: bool = False

    async def filled(self) -> _ReadAhead:
        """Read on if nothing is left of the page before."""
        while not self.answers and not self.is_over:
            page = await self.read(after=self.more)
            self.answers.extend(page.answers)
            self.more, self.is_over = page.more, page.more is None
        return self

    def push(self, waiting: list[_Next], sign: int) -> None:
        """Put the next answer among those of the other parts."""
        if self.answers:
            place, answer = self.answers.popleft()
            heapq.heappush(waiting, _Next(tuple(sign * number for number in place), answer, self))


class _Next(NamedTuple):
    """The next answer of a part. No two have the same place, so nothing else is compared."""

    order: tuple[int, ...]
    answer: AnswerSummary
    source: _ReadAhead


def _merged_place(part: int, place: Place) -> MergedPlace:
    return MergedPlace(place.key, part, place.row)


def _place(each: _MergedAnswer) -> MergedPlace:
    return each.place


def _answers(shown: Iterable[_MergedAnswer]) -> tuple[AnswerSummary, ...]:
    return tuple(each.answer for each in shown)


def _judged(answer: AnswerSummary) -> int:
    return answer.judged_ns


def _joined(parts: Iterable[Iterable[FoundT]]) -> list[FoundT]:
    return [each for part in parts for each in part]


def _added(parts: Iterable[Mapping[FoundT, int]]) -> Counter[FoundT]:
    added: Counter[FoundT] = Counter()
    for part in parts:
        added.update(part)
    return added


def _position(positions: Mapping[int, int]) -> int:
    """Return the positions of all parts as one number."""
    packed = b"".join(_POSITION.pack(*each) for each in sorted(positions.items()))
    return int.from_bytes(_MARK + packed)


def _positions(position: int | None) -> dict[int, int]:
    """Return the position of each part.

    Raises:
        InputError: it is the position of no merged index.
    """
    if not position:
        return {}
    try:
        packed = position.to_bytes((position.bit_length() + 7) // 8)
        return dict(_POSITION.iter_unpack(packed.removeprefix(_MARK)))
    except (OverflowError, struct.error) as exc:
        raise InputError("the position is of another index: begin without one") from exc
