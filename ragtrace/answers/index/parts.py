"""What several indexes must tell of their lists and sums, so that `MergedAnswerIndex` can merge them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from ragtrace.answers.index._cursor import Place
from ragtrace.answers.port import AnswerFilter, AnswerIndex, SortBy, TrafficScope
from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerSummary
from ragtrace.model import Label

PartT = TypeVar("PartT")
FoundT = TypeVar("FoundT")


class PlacedAnswer(NamedTuple):
    """An answer and its place in a list."""

    place: Place
    answer: AnswerSummary


class PlacedSession(NamedTuple):
    """A judged session and its place in the list."""

    place: Place
    session: SessionSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPage:
    """One page of a list with the places of its answers."""

    answers: tuple[PlacedAnswer, ...]
    more: Place | None
    """Where the list goes on: it has no other answer up to there. ``None`` at the end."""
    is_cut: bool = False
    """The search stopped after its time limit before the page was full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendSums:
    """What a trend is made of: whole numbers, which add up exactly."""

    is_lower_better: bool = False
    whole: Counter[str] = field(default_factory=Counter)
    periods: dict[int, Counter[str]] = field(default_factory=dict)
    """By the hour since 1970 at which a period begins."""

    @classmethod
    def of_all(cls, parts: Iterable[TrendSums]) -> TrendSums:
        """Add the sums of indexes that share no trace."""
        parts = tuple(parts)
        found = cls(is_lower_better=any(part.is_lower_better for part in parts))
        for part in parts:
            found.whole.update(part.whole)
            for start, amounts in part.periods.items():
                found.periods.setdefault(start, Counter()).update(amounts)
        return found


class IndexPart(AnswerIndex, Protocol):
    """An index that can be a part of a merged one.

    Keys of places are the same in each: times, and scores, costs, doubt and suspicion as whole numbers.
    """

    async def placed(
        self,
        chosen: AnswerFilter,
        *,
        sort: SortBy,
        after: Place | None,
        limit: int,
        is_lower_better: bool | None = None,
        parts: int = 1,
    ) -> PlacedPage:
        """Return a page of a list with the places of its answers.

        ``is_lower_better`` says which scores of the filter's metric are the worst; ``None`` if the index
        decides. ``parts`` says how many indexes look for answers, and so share the effort.
        """
        ...

    async def random_order(
        self, scope: TrafficScope, *, after: float, limit: int, parts: int = 1
    ) -> Sequence[tuple[float, AnswerSummary]]:
        """Return the next answers in random order, as one of several ``parts``."""
        ...

    async def placed_sessions(
        self, *, tenant: str | None, label: Label | None, before: Place | None, limit: int
    ) -> Sequence[PlacedSession]:
        """Return judged sessions with their places in the list, the newest first."""
        ...

    async def is_lower_better(self, metric: str) -> bool:
        """Return whether less of a metric is better; false if no answer has a score of it."""
        ...

    async def trend_sums(self, metric: str, scope: TrafficScope, *, period_ns: int) -> TrendSums:
        """Return what the trend of a metric is made of.

        Raises:
            ValueError: the period is not a multiple of an hour.
        """
        ...


async def ask_each(
    parts: Iterable[PartT], ask: Callable[[PartT], Coroutine[Any, Any, FoundT]]
) -> list[FoundT]:
    """Ask all parts at once, and return what each says, in their order.

    Raises:
        Exception: the first failure, bare; the other questions are canceled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(part)) for part in parts]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
