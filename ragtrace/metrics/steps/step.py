"""What a judge step is: a value that says what to ask, and what becomes of the replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeNonsense
from ragtrace.judge_forms import NumberedText
from ragtrace.judge_steps import ClaimExtraction, Prompt, PromptName, StepName
from ragtrace.metrics._evidence import NumberedContext
from ragtrace.metrics.asking import misnumbered
from ragtrace.metrics.fence import Section
from ragtrace.metrics.settings import Prompts, StepLimits, VerifySettings
from ragtrace.model import RagRecord, Usage
from ragtrace.ports import Judge, JudgeRequest
from ragtrace.sentences import Sentence


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


_AGAIN: Final = (
    "Your last reply left numbers out, repeated some, or had others. Answer about each of these once: {}"
)

GivenT = TypeVar("GivenT", bound=BaseModel)
ReplyT = TypeVar("ReplyT", bound=BaseModel)
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

    Example: `ragtrace.metrics.steps.questions` is the shortest.
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
