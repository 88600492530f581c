"""Step A: ask for the statements of an answer's numbered sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.judge_forms import (
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    NumberedText,
)
from ragtrace.judge_steps import ClaimExtraction, Prompt, Statement
from ragtrace.metrics.judge_calls import batches, halves, output_tokens, together
from ragtrace.metrics.prompt import render_extract
from ragtrace.model import Claim
from ragtrace.ports import Judge, JudgeRequest
from ragtrace.sentences import Sentence

_MIN_REPEATED_CHARS = 10


async def extract_claims(
    sentences: Sequence[Sentence],
    *,
    question: str | None,
    judge: Judge,
    prompt: Prompt,
    fence_code: str,
    sentences_per_call: int,
) -> ClaimExtraction:
    """Ask for the claims of an answer.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    asking = _Asking(question=question, judge=judge, prompt=prompt, fence_code=fence_code)
    answers = await together(asking.list_all(part) for part in batches(sentences, sentences_per_call))
    return _join([part for parts in answers for part in parts], sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """The common part of all calls."""

    question: str | None
    judge: Judge
    prompt: Prompt
    fence_code: str

    async def list_all(self, part: Sequence[Sentence]) -> list[_Part]:
        """Return the statements; ask once more about omitted sentences."""
        first = await self._ask(part)
        cited = {number for checked in first for number in checked.cited}
        left_out = [sentence for sentence in part if sentence.number not in cited]
        if not left_out or all(checked.refusal for checked in first):
            return first
        try:
            again = await self._ask(left_out, [sentence for sentence in part if sentence.number in cited])
        except JudgeNonsense:
            return first
        return [*first, *again]

    async def _ask(self, part: Sequence[Sentence], surroundings: Sequence[Sentence] = ()) -> list[_Part]:
        try:
            reply = await self.judge.ask(self._request(part, surroundings))
        except JudgeCutOff:
            if len(part) == 1:
                raise
            return [checked for half in halves(part) for checked in await self._ask(half, surroundings)]
        return [_Part.check(reply.value, asked=_numbers(part), shown=(*part, *surroundings))]

    def _request(
        self, part: Sequence[Sentence], surroundings: Sequence[Sentence]
    ) -> JudgeRequest[ExtractReply]:
        given = ExtractInput(
            question=self.question, sentences=_numbered(part), surroundings=_numbered(surroundings)
        )
        return JudgeRequest(
            step="extract",
            system=self.prompt.text,
            user=render_extract(given, self.fence_code),
            reply_type=ExtractReply,
            inputs=given,
            max_output_tokens=output_tokens([sentence.text for sentence in part]),
        )


def _numbers(sentences: Iterable[Sentence]) -> set[int]:
    return {sentence.number for sentence in sentences}


def _numbered(sentences: Iterable[Sentence]) -> tuple[NumberedText, ...]:
    return tuple(NumberedText(number=sentence.number, text=sentence.text) for sentence in sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """A statement of one reply, with the existing sentences it cites."""

    sentences: tuple[int, ...]
    text: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One checked reply."""

    stated: tuple[_Stated, ...]
    rejected: int
    refusal: bool

    @property
    def cited(self) -> set[int]:
        return {number for statement in self.stated for number in statement.sentences}

    @classmethod
    def check(cls, reply: ExtractReply, *, asked: set[int], shown: Sequence[Sentence]) -> _Part:
        given, texts = reply.claims, {sentence.number: _bare(sentence.text) for sentence in shown}
        cited = [(_sources(claim, texts), claim) for claim in given if claim.text.strip()]
        known = [(numbers, claim) for numbers, claim in cited if numbers & texts.keys()]
        return cls(
            stated=tuple(_stated(numbers & asked, claim) for numbers, claim in known if numbers & asked),
            rejected=len(given) - len(known),
            refusal=reply.refusal,
        )


def _stated(sentences: set[int], claim: ExtractedClaim) -> _Stated:
    return _Stated(sentences=tuple(sorted(sentences)), text=" ".join(claim.text.split()), kind=claim.kind)


def _sources(claim: ExtractedClaim, texts: Mapping[int, str]) -> set[int]:
    """Return the sentences that the claim cites; a sentence that it repeats takes precedence."""
    cited, repeated = {*claim.sentence_ids}, _bare(claim.text)
    if len(repeated) < _MIN_REPEATED_CHARS:
        return cited
    repeating = [number for number, text in texts.items() if repeated in text]
    return {repeating[0]} if repeating and cited.isdisjoint(repeating) else cited


def _bare(text: str) -> str:
    return " ".join(text.split()).rstrip(" .!").casefold()


def _join(parts: Sequence[_Part], sentences: Sequence[Sentence]) -> ClaimExtraction:
    stated = [statement for part in parts for statement in part.stated]
    statements = tuple(_statements(stated, {sentence.number: sentence for sentence in sentences}))
    factual = (statement.claim for statement in statements if statement.claim.kind == "factual")
    covered = {number for part in parts for number in part.cited}
    return ClaimExtraction(
        claims=tuple(_indexed(claim, index) for index, claim in enumerate(factual)),
        statements=statements,
        refusal=bool(parts) and all(part.refusal for part in parts),
        sentence_coverage=len(covered) / len(sentences) if sentences else None,
        rejected=sum(part.rejected for part in parts),
    )


def _indexed(claim: Claim, index: int) -> Claim:
    return claim if claim.index == index else replace(claim, index=index)


def _statements(stated: Iterable[_Stated], sentences: Mapping[int, Sentence]) -> Iterator[Statement]:
    once: dict[tuple[object, ...], _Stated] = {}  # a repeated statement must count once
    for statement in stated:
        once.setdefault((statement.sentences, statement.text, statement.kind), statement)
    for index, each in enumerate(sorted(once.values(), key=lambda one: one.sentences[0])):
        start, end = sentences[each.sentences[0]].start, sentences[each.sentences[-1]].end
        yield Statement(
            claim=Claim(index=index, text=each.text, start=start, end=end, kind=each.kind),
            sentences=each.sentences,
        )
