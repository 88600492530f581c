"""Step A: ask for the claims of an answer, sentence by numbered sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ragtrace.errors import JudgeCutOff
from ragtrace.metrics.asking import batches, halves, output_tokens, together
from ragtrace.metrics.forms import ExtractedClaim, ExtractInput, ExtractReply, NumberedText
from ragtrace.metrics.prompt import Prompt, render_extract
from ragtrace.metrics.sentences import Sentence
from ragtrace.model import Claim
from ragtrace.ports import Judge, JudgeRequest

__all__ = ["Extraction", "extract_claims"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What step A found."""

    claims: tuple[Claim, ...]
    """The factual claims, in the order of the answer."""
    refusal: bool
    """The answer as a whole declines to answer."""
    sentence_coverage: float | None
    """Share of the sentences that some statement was drawn from; ``None`` for an answer without any."""
    rejected: int
    """Statements that cite no sentence of the answer."""


async def extract_claims(
    sentences: Sequence[Sentence],
    *,
    question: str | None,
    judge: Judge,
    prompt: Prompt,
    fence_code: str,
    sentences_per_call: int,
) -> Extraction:
    """Ask for the claims of an answer.

    Raises:
        JudgeError: the judge gave no usable answer.
    """

    async def ask(part: Sequence[Sentence]) -> list[_Part]:
        try:
            reply = await judge.ask(_request(part, question, prompt, fence_code))
        except JudgeCutOff:
            if len(part) == 1:
                raise
            return [answered for half in halves(part) for answered in await ask(half)]
        return [_Part.check(reply.value, {sentence.number for sentence in part})]

    answers = await together(ask(part) for part in batches(sentences, sentences_per_call))
    return _join([part for parts in answers for part in parts], sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One checked reply."""

    stated: tuple[tuple[tuple[int, ...], ExtractedClaim], ...]
    """Statements, under the existing sentences they cite."""
    rejected: int
    refusal: bool

    @classmethod
    def check(cls, reply: ExtractReply, shown: Collection[int]) -> _Part:
        cited = [(tuple(sorted({*claim.sentence_ids} & {*shown})), claim) for claim in reply.claims]
        stated = tuple((numbers, claim) for numbers, claim in cited if numbers and claim.text.strip())
        return cls(stated=stated, rejected=len(cited) - len(stated), refusal=reply.refusal)


def _request(
    part: Sequence[Sentence], question: str | None, prompt: Prompt, fence_code: str
) -> JudgeRequest[ExtractReply]:
    shown = tuple(NumberedText(number=sentence.number, text=sentence.text) for sentence in part)
    given = ExtractInput(question=question, sentences=shown)
    return JudgeRequest(
        step="extract",
        system=prompt.text,
        user=render_extract(given, fence_code),
        reply_type=ExtractReply,
        inputs=given,
        max_output_tokens=output_tokens(len(part)),
    )


def _join(parts: Sequence[_Part], sentences: Sequence[Sentence]) -> Extraction:
    stated = [statement for part in parts for statement in part.stated]
    covered = {number for numbers, _ in stated for number in numbers}
    return Extraction(
        claims=tuple(_claims(stated, {sentence.number: sentence for sentence in sentences})),
        refusal=bool(parts) and all(part.refusal for part in parts),
        sentence_coverage=len(covered) / len(sentences) if sentences else None,
        rejected=sum(part.rejected for part in parts),
    )


def _claims(
    stated: Iterable[tuple[tuple[int, ...], ExtractedClaim]], sentences: dict[int, Sentence]
) -> Iterator[Claim]:
    factual = ((numbers, " ".join(c.text.split())) for numbers, c in stated if c.kind == "factual")
    once = dict.fromkeys(factual)  # the same statement twice would count twice
    for index, (numbers, text) in enumerate(sorted(once, key=lambda claim: claim[0][0])):
        start, end = sentences[numbers[0]].start, sentences[numbers[-1]].end
        yield Claim(index=index, text=text, start=start, end=end)
