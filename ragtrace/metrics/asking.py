"""Judge calls: what a step asks, in batches, concurrently, metered; again for wrong numbers, in halves for
what was cut off.

The numbers of a reply are checked as a set. A judge that counts from 0 shifts every verdict by one; so a
reply that leaves a number out, repeats one or has another is not believed at all.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeError, JudgeNonsense
from ragtrace.judge_forms import NumberedText
from ragtrace.judge_steps import ClaimExtraction, Prompt, PromptName, StepName
from ragtrace.metrics._evidence import NumberedContext
from ragtrace.metrics.fence import Section
from ragtrace.metrics.settings import Prompts, StepLimits, VerifySettings
from ragtrace.model import (
    Claim,
    DecidedBy,
    JudgeIdentity,
    RagRecord,
    StepRun,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import Clock, Embedder, Judge, JudgeReply, JudgeRequest
from ragtrace.sentences import Sentence

T = TypeVar("T")
S = TypeVar("S")
ReplyT = TypeVar("ReplyT", bound=BaseModel)

_NS_A_MS = 1_000_000
_TOKENS_A_REPLY = 256
_TOKENS_AN_ITEM = 160
_BYTES_A_TOKEN = 2


class MeteredJudge:
    """A judge that sums up its usage and time by step, failed requests included."""

    def __init__(self, judge: Judge, clock: Clock) -> None:
        self._judge = judge
        self._clock = clock
        self._metered: dict[str, _Metered] = {}

    @property
    def spent(self) -> Usage:
        """Its usage so far."""
        return sum((metered.spent for metered in self._metered.values()), Usage())

    @property
    def runs(self) -> tuple[StepRun, ...]:
        """Its usage and time by step, from the first request of a step to the end of the last."""
        return tuple(
            StepRun(step=step, duration_ms=metered.duration_ms, usage=metered.spent)
            for step, metered in self._metered.items()
        )

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self._judge.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request, and count its usage."""
        with self._step(request.step) as metered:
            reply = await self._judge.ask(request)
            metered.spent += reply.usage
        return reply

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Turn texts into vectors, and count the usage."""
        with self._step("embed") as metered:
            embeddings = await embedder.embed(texts)
            metered.spent += embeddings.usage
        if len(embeddings.vectors) != len(texts):
            raise JudgeNonsense(f"the embedder gave {len(embeddings.vectors)} vectors for {len(texts)} texts")
        return embeddings.vectors

    async def aclose(self) -> None:
        """Close the judge."""
        await self._judge.aclose()

    @contextmanager
    def _step(self, step: str) -> Iterator[_Metered]:
        now_ns = self._clock.now_ns()
        metered = self._metered.setdefault(step, _Metered(started_ns=now_ns, ended_ns=now_ns))
        try:
            yield metered
        except JudgeError as failed:
            metered.spent += failed.usage
            raise
        finally:
            metered.ended_ns = self._clock.now_ns()


@dataclass(slots=True, kw_only=True)
class _Metered:
    """The requests of one step."""

    started_ns: int
    ended_ns: int
    spent: Usage = field(default_factory=Usage)

    @property
    def duration_ms(self) -> int:
        return max(0, self.ended_ns - self.started_ns) // _NS_A_MS


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the calls concurrently and return their values in order.

    Raises:
        Exception: the first failure, bare; the other calls are cancelled.
    """
    calls = [*calls]
    if len(calls) == 1:
        return [await calls[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, S]) -> tuple[T, S]:
    """Run two calls concurrently.

    Raises:
        Exception: the first failure, bare; the other call is cancelled.
    """
    calls: list[Coroutine[Any, Any, Any]] = [first, second]
    one, other = await together(calls)
    return one, other


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Split the items into batches of at most ``size``, in order."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def output_tokens(texts: Collection[str]) -> int:
    """Return the number of output tokens that a reply about these texts needs.

    Repeating long texts, or scripts with several bytes per character, takes more tokens.
    """
    size = len("".join(texts).encode("utf-8", "replace"))
    return _TOKENS_A_REPLY + _TOKENS_AN_ITEM * len(texts) + size // _BYTES_A_TOKEN


ItemT = TypeVar("ItemT")


class PartialAnswers(ABC, Generic[ItemT]):
    """What the judge's replies so far say about some items."""

    @abstractmethod
    def joined(self, other: Self) -> Self:
        """Add the answers of a further request."""

    @abstractmethod
    def missing(self, items: Sequence[ItemT]) -> Sequence[ItemT]:
        """Return the items to ask for once more."""

    @abstractmethod
    def without_missing(self, items: Sequence[ItemT]) -> Self:
        """Return these answers, or raise if items must not be missing."""


AnswersT = TypeVar("AnswersT", bound=PartialAnswers)  # type: ignore[type-arg]  # of any items
Ask: TypeAlias = Callable[[Sequence[ItemT], Sequence[ItemT], bool], Awaitable[AnswersT]]
"""Makes one request about items. It may show others for the sense: those that have answers already. The flag
says that it is asked again."""
CutOff: TypeAlias = Callable[[Sequence[ItemT], JudgeCutOff], AnswersT]
"""Returns what becomes of items whose reply was cut off while another half was answered, or raises."""


async def ask_items(
    items: Sequence[ItemT], ask: Ask[ItemT, AnswersT], cut_off: CutOff[ItemT, AnswersT]
) -> AnswersT:
    """Return what the judge says about all items.

    Missing items are requested once more; truncated requests are repeated in halves.

    Raises:
        JudgeError: the first request got no usable answer, the numbers were wrong again, or all replies were
            cut off.
    """
    first = await _in_halves_if_cut(items, (), ask, cut_off)
    again = first.missing(items)
    if not again:
        return first
    left_out = {id(item) for item in again}
    answered = [item for item in items if id(item) not in left_out]
    try:
        second = await _in_halves_if_cut(again, answered, ask, cut_off, again=True)
    except JudgeNonsense:
        return first.without_missing(items)
    return first.joined(second).without_missing(items)


async def _in_halves_if_cut(
    items: Sequence[ItemT],
    answered: Sequence[ItemT],
    ask: Ask[ItemT, AnswersT],
    cut_off: CutOff[ItemT, AnswersT],
    *,
    again: bool = False,
) -> AnswersT:
    try:
        return await ask(items, answered, again)
    except JudgeCutOff:
        if len(items) == 1:
            raise
    parts: list[AnswersT] = []
    errors: list[JudgeCutOff] = []
    middle = len(items) // 2
    for half in (items[:middle], items[middle:]):
        try:
            parts.append(await _in_halves_if_cut(half, answered, ask, cut_off, again=again))
        except JudgeCutOff as exc:
            errors.append(exc)
            parts.append(cut_off(half, exc))
    if len(errors) == len(parts):
        raise errors[0]
    return parts[0].joined(parts[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReplies(PartialAnswers[NumberedText], Generic[T]):
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
        """Keep the answers if each number that was asked about came exactly once, and no other.

        ``abstained`` are items that the judge declined to decide, with the reasons in ``notes``. Answers to
        ``canaries`` are no answers to items.
        """
        answers, numbers = list(given), {item.number for item in asked}
        passed = numbers.intersection(abstained)
        known = numbers.union(canaries)
        said = [number for number, _ in answers]
        if misnumbered([*said, *passed], known):
            return cls(found={}, rejected=sum(number not in known for number in said))
        return cls(
            found={number: answer for number, answer in answers if number in numbers},
            given_up={n: (notes or {}).get(n, "the judge abstained") for n in sorted(passed)},
        )

    @classmethod
    def cut_off(cls, items: Sequence[NumberedText], error: JudgeCutOff) -> ItemReplies[T]:
        """Give up items whose reply was cut off."""
        lost = {item.number: "the judge's reply was cut off" for item in items}
        return cls(found={}, given_up=lost, omitted=frozenset(lost))

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
        )

    def missing(self, items: Sequence[NumberedText]) -> list[NumberedText]:
        """Return the items without any answer."""
        return [item for item in items if item.number not in self.found and item.number not in self.given_up]

    def unjudged(self, claim: Claim) -> Verdict:
        """Return the verdict on a claim that was given up."""
        number = claim.index + 1
        return Verdict(
            claim=claim,
            label=VerdictLabel.UNJUDGED,
            reason=self.given_up[number],
            omitted=number in self.omitted,
        )

    def without_missing(self, items: Sequence[NumberedText]) -> ItemReplies[T]:
        """Return these answers.

        Raises:
            JudgeNonsense: items are missing.
        """
        if self.missing(items):
            what = "the judge left out, repeated or invented numbers of what it was asked about, twice"
            raise JudgeNonsense(what, usage=Usage())
        return self


def misnumbered(said: Iterable[int], asked: Collection[int]) -> bool:
    """Return whether a reply leaves out, repeats or adds numbers."""
    return Counter(said) != Counter(asked)


def chunk_sections(chunks: Iterable[NumberedText]) -> list[Section]:
    """Put each chunk under its number."""
    return [(f"chunk {chunk.number}", [chunk.text]) for chunk in chunks]


def numbered_section(name: str, texts: Iterable[NumberedText]) -> Section:
    """Put numbered texts under a name, one line each: a line break could let a text fake the next number."""
    return name, [f"[{item.number}] {' '.join(item.text.split())}" for item in texts]


def one_a_number(pack: Iterable[NumberedText]) -> list[NumberedText]:
    """Join the pieces of a long chunk that are in one pack: a number must be unique."""
    texts: dict[int, list[str]] = {}
    for piece in pack:
        texts.setdefault(piece.number, []).append(piece.text)
    return [NumberedText(number=number, text="\n".join(parts)) for number, parts in texts.items()]


async def ask_each(
    step: Step[Any, Any, Any],
    material: Material,
    items: Sequence[NumberedText],
    size: int,
    give: Callable[[tuple[NumberedText, ...]], BaseModel],
) -> ItemReplies[Any]:
    """Ask about items, at most ``size`` a request; ``give`` makes a request's material of some of them."""

    async def ask(
        some: Sequence[NumberedText], answered: Sequence[NumberedText], again: bool
    ) -> ItemReplies[Any]:
        reply = await material.judge.ask(step.request(give(tuple(some)), material, again=again))
        listed = ((entry.id, entry) for entry in getattr(reply.value, step.items or ""))
        return ItemReplies.check(listed, asked=some, abstained=reply.abstained, notes=reply.notes)

    nothing: ItemReplies[Any] = ItemReplies(found={})
    answers = await together(ask_items(batch, ask, ItemReplies.cut_off) for batch in batches(items, size))
    return reduce(ItemReplies.joined, answers, nothing)


_AGAIN: Final = (
    "Your last reply left numbers out, repeated some, or had others. Answer about each of these once: {}"
)

GivenT = TypeVar("GivenT", bound=BaseModel)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A record as the steps see it, and the judge that they ask about it."""

    record: RagRecord
    sentences: Sequence[Sentence]
    """The sentences of the answer, as many as the limits allow."""
    reference: Sequence[Sentence]
    """The sentences of the reference, as many as the limits allow."""
    context: NumberedContext
    limits: StepLimits
    verify: VerifySettings
    """The settings of verify requests to this judge."""
    prompts: Prompts
    fence_code: str
    """The code of the record's fences; also seeds the order of chunks and the canary claims."""
    judge: Judge
    extraction: Callable[[], Awaitable[ClaimExtraction]]
    """Returns the result of the step ``extract``, which runs once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[GivenT, ReplyT, ResultT]):
    """A judge step: what its requests are made of, and how it runs.

    Example: `ragtrace.metrics.steps.QUESTIONS` is the shortest.
    """

    name: StepName
    """Its name in logs, caches and scripts."""
    prompts: tuple[PromptName, ...]
    """The prompts that it may use, the usual one first. A metric's version changes with them."""
    after: tuple[StepName, ...] = ()
    """The steps whose results it needs."""
    reply: type[ReplyT]
    """The form of the judge's reply."""
    render: Callable[[GivenT, str], str]
    """Renders the material of a request behind fences with this code."""
    output_tokens: Callable[[GivenT], int]
    """How many tokens a reply may need."""
    items: str | None = None
    """The field of the material whose texts are answered one by one, each under its number."""
    run: Callable[[Material], Awaitable[ResultT]]
    """Asks the judge, checks the replies and returns the result."""

    def request(
        self,
        given: GivenT,
        material: Material,
        *,
        prompt: Prompt | None = None,
        items: Sequence[NumberedText] = (),
        about: Callable[[Collection[int]], JudgeRequest[ReplyT]] | None = None,
        check: Callable[[ReplyT], None] | None = None,
        again: bool = False,
    ) -> JudgeRequest[ReplyT]:
        """Make a request.

        Args:
            given: Its material.
            material: The record that it is about.
            prompt: Instructions other than the step's usual prompt.
            items: The claims that a screen may decide; then ``about`` asks about the others.
            about: Makes the same request about some of the items.
            check: Raises ``JudgeCompromised`` if a reply is not to be believed.
            again: The last reply had other numbers than it was asked about: say so.
        """
        numbers = [item.number for item in getattr(given, self.items)] if self.items else []
        user = self.render(given, material.fence_code)

        def checked(reply: ReplyT) -> None:
            if self.items and misnumbered(getattr(reply, "ids", ()), numbers):
                raise JudgeNonsense("the reply has other numbers than it was asked about", usage=Usage())
            if check:
                check(reply)

        return JudgeRequest(
            step=self.name,
            system=(prompt or material.prompts.named(self.prompts[0])).text,
            user=f"{user}\n{_AGAIN.format(', '.join(map(str, numbers)))}" if again else user,
            reply_type=self.reply,
            inputs=given,
            max_output_tokens=self.output_tokens(given),
            items={item.number: item.text for item in items},
            about=about,
            check=checked,
        )
