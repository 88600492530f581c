"""Requests one answer per item, and asks once more for missing, repeated and truncated ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.judge_forms import NumberedText
from ragtrace.metrics.judge_calls import halves

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReplies(Generic[T]):
    """The judge's answers, by item number."""

    found: Mapping[int, T]
    given_up: Mapping[int, str] = field(default_factory=dict)
    """Items without an answer, with the reason."""
    omitted: frozenset[int] = frozenset()
    """The items that the judge left out without abstaining."""
    rejected: int = 0
    """Number of answers with unknown numbers."""

    @classmethod
    def check(
        cls,
        given: Iterable[tuple[int, T]],
        *,
        asked: Sequence[NumberedText],
        abstained: Iterable[int] = (),
        notes: Mapping[int, str] | None = None,
    ) -> ItemReplies[T]:
        """Keep answers with a requested number that came exactly once.

        ``abstained`` are items that the judge declined to decide, with the reasons in ``notes``.
        """
        answers, numbers = list(given), {item.number for item in asked}
        times = Counter(number for number, _ in answers)
        passed = numbers.intersection(abstained)
        return cls(
            found={n: answer for n, answer in answers if n in numbers - passed and times[n] == 1},
            given_up={n: (notes or {}).get(n, "the judge abstained") for n in sorted(passed)},
            rejected=sum(count for number, count in times.items() if number not in numbers),
        )

    def joined(self, other: ItemReplies[T]) -> ItemReplies[T]:
        """Add the answers of a further request."""
        found = {**self.found, **other.found}
        given_up = {**self.given_up, **other.given_up}
        return ItemReplies(
            found=found,
            given_up={n: why for n, why in given_up.items() if n not in found},
            omitted=(self.omitted | other.omitted).difference(found),
            rejected=self.rejected + other.rejected,
        )

    def missing(self, items: Iterable[NumberedText]) -> list[NumberedText]:
        """Return the items without any answer."""
        return [item for item in items if item.number not in self.found and item.number not in self.given_up]

    def without_missing(self, items: Iterable[NumberedText], reason: str) -> ItemReplies[T]:
        """Give up the items that are still missing."""
        lost = {item.number: reason for item in self.missing(items)}
        return ItemReplies(
            found=self.found,
            given_up={**self.given_up, **lost},
            omitted=self.omitted.union(lost),
            rejected=self.rejected,
        )


AskAbout: TypeAlias = Callable[[Sequence[NumberedText]], Awaitable[ItemReplies[T]]]
"""Makes one request about some of the items."""


async def ask_items(items: Sequence[NumberedText], ask: AskAbout[T]) -> ItemReplies[T]:
    """Return an answer for every item, or a reason why there is none.

    Missing and repeated items are requested once more; truncated requests are repeated in halves.

    Raises:
        JudgeError: the first request got no usable answer, or all replies were cut off.
    """
    first = await _in_halves_if_cut(items, ask)
    again = first.missing(items)
    if not again:
        return first
    try:
        second = await _in_halves_if_cut(again, ask)
    except JudgeNonsense:
        return first.without_missing(items, "asked again, the judge gave no usable reply")
    return first.joined(second).without_missing(
        items, "the judge gave no answer, or several, and asked again as well"
    )


async def _in_halves_if_cut(items: Sequence[NumberedText], ask: AskAbout[T]) -> ItemReplies[T]:
    try:
        return await ask(items)
    except JudgeCutOff:
        if len(items) == 1:
            raise
    nothing: ItemReplies[T] = ItemReplies(found={})
    whole = nothing
    cut_off: list[JudgeCutOff] = []
    for half in halves(items):
        try:
            part = await _in_halves_if_cut(half, ask)
        except JudgeCutOff as exc:
            cut_off.append(exc)
            part = nothing.without_missing(half, "the judge's reply was cut off")
        whole = whole.joined(part)
    if len(cut_off) == 2:
        raise cut_off[0]
    return whole
