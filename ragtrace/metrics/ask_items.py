"""Asks about many items: once more for what is missing, in halves for what was cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.judge_forms import NumberedText
from ragtrace.metrics.judge_calls import halves
from ragtrace.model import DecidedBy

T = TypeVar("T")
ItemT = TypeVar("ItemT")


class PartialAnswers(Protocol[ItemT]):
    """What the judge's replies so far say about some items."""

    def joined(self, other: Self) -> Self:
        """Add the answers of a further request."""
        ...

    def missing(self, items: Sequence[ItemT]) -> Sequence[ItemT]:
        """Return the items to ask for once more."""
        ...

    def without_missing(self, items: Sequence[ItemT], reason: str) -> Self:
        """Give up the items that are still missing."""
        ...


AnswersT = TypeVar("AnswersT", bound=PartialAnswers)  # type: ignore[type-arg]  # of any items


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuestion(Generic[ItemT, AnswersT]):
    """How to ask about some of a step's items."""

    ask: Callable[[Sequence[ItemT], Sequence[ItemT]], Awaitable[AnswersT]]
    """Makes one request about items. It may show others for the sense: those that have answers already."""
    cut_off: Callable[[Sequence[ItemT], JudgeCutOff], AnswersT]
    """Returns what becomes of items whose reply was cut off while another half was answered, or raises."""
    answer: str = "answer"
    """What an answer is called."""


async def ask_items(items: Sequence[ItemT], question: ItemQuestion[ItemT, AnswersT]) -> AnswersT:
    """Return what the judge says about all items.

    Missing and repeated items are requested once more; truncated requests are repeated in halves.

    Raises:
        JudgeError: the first request got no usable answer, or all replies were cut off.
    """
    first = await _in_halves_if_cut(items, (), question)
    again = first.missing(items)
    if not again:
        return first
    left_out = {id(item) for item in again}
    answered = [item for item in items if id(item) not in left_out]
    try:
        second = await _in_halves_if_cut(again, answered, question)
    except JudgeNonsense:
        return first.without_missing(items, "asked again, the judge gave no usable reply")
    return first.joined(second).without_missing(
        items, f"the judge gave no {question.answer}, or several, and asked again as well"
    )


async def _in_halves_if_cut(
    items: Sequence[ItemT], answered: Sequence[ItemT], question: ItemQuestion[ItemT, AnswersT]
) -> AnswersT:
    try:
        return await question.ask(items, answered)
    except JudgeCutOff:
        if len(items) == 1:
            raise
    parts: list[AnswersT] = []
    errors: list[JudgeCutOff] = []
    for half in halves(items):
        try:
            parts.append(await _in_halves_if_cut(half, answered, question))
        except JudgeCutOff as exc:
            errors.append(exc)
            parts.append(question.cut_off(half, exc))
    if len(errors) == len(parts):
        raise errors[0]
    return parts[0].joined(parts[1])


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
    canaries_passed: int = 0
    """Canary claims among the items that the judge got right."""
    canaries_silent: int = 0
    """Canary claims without an answer."""
    support: Mapping[int, float] = field(default_factory=dict)
    """P(the chunks support the claim) by item, if the judge gives one."""
    decided_by: Mapping[int, DecidedBy] = field(default_factory=dict)
    """Who decided, by item, if the judge is a cascade."""

    @classmethod
    def check(
        cls,
        given: Iterable[tuple[int, T]],
        *,
        asked: Sequence[NumberedText],
        abstained: Iterable[int] = (),
        notes: Mapping[int, str] | None = None,
        canaries: Collection[int] = (),
    ) -> ItemReplies[T]:
        """Keep answers with a requested number that came exactly once.

        ``abstained`` are items that the judge declined to decide, with the reasons in ``notes``. Answers to
        ``canaries`` are no answers to items.
        """
        answers, numbers = list(given), {item.number for item in asked}
        times = Counter(number for number, _ in answers)
        passed = numbers.intersection(abstained)
        known = numbers.union(canaries)
        return cls(
            found={n: answer for n, answer in answers if n in numbers - passed and times[n] == 1},
            given_up={n: (notes or {}).get(n, "the judge abstained") for n in sorted(passed)},
            rejected=sum(count for number, count in times.items() if number not in known),
        )

    @classmethod
    def cut_off(cls, items: Sequence[NumberedText], error: JudgeCutOff) -> ItemReplies[T]:
        """Give up items whose reply was cut off."""
        return cls(found={}).without_missing(items, "the judge's reply was cut off")

    def joined(self, other: ItemReplies[T]) -> ItemReplies[T]:
        """Add the answers of a further request."""
        found = {**self.found, **other.found}
        given_up = {**self.given_up, **other.given_up}
        return ItemReplies(
            found=found,
            given_up={n: why for n, why in given_up.items() if n not in found},
            omitted=(self.omitted | other.omitted).difference(found),
            rejected=self.rejected + other.rejected,
            support={**self.support, **other.support},
            decided_by={**self.decided_by, **other.decided_by},
            canaries_passed=self.canaries_passed + other.canaries_passed,
            canaries_silent=self.canaries_silent + other.canaries_silent,
        )

    def missing(self, items: Sequence[NumberedText]) -> list[NumberedText]:
        """Return the items without any answer."""
        return [item for item in items if item.number not in self.found and item.number not in self.given_up]

    def without_missing(self, items: Sequence[NumberedText], reason: str) -> ItemReplies[T]:
        """Give up the items that are still missing."""
        lost = {item.number: reason for item in self.missing(items)}
        return replace(self, given_up={**self.given_up, **lost}, omitted=self.omitted.union(lost))
