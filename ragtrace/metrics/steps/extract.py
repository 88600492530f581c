"""Step A: ask for the statements of an answer's numbered sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.judge_forms import (
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    NumberedText,
    TurnText,
)
from ragtrace.judge_steps import ClaimExtraction, Statement
from ragtrace.metrics.asking import PartialAnswers, ask_items, batches, output_tokens, together
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.steps.step import Material, Step, numbered_section
from ragtrace.model import Claim, Usage
from ragtrace.sentences import Sentence, is_heading

_MIN_REPEATED_CHARS = 10
_EARLIER: Final = "earlier turns: only to see what words stand for, list nothing from them"


async def extract_claims(material: Material) -> ClaimExtraction:
    """Ask for the claims of an answer."""
    parts = batches(material.sentences, material.limits.sentences_per_call)
    answers = await together(ask_items(part, partial(_ask, material), _fail) for part in parts)
    return _join([part for found in answers for part in found.parts], material.sentences)


async def _ask(
    material: Material, part: Sequence[Sentence], surroundings: Sequence[Sentence], again: bool
) -> _Found:
    answer = material.record.answer or ""
    given = ExtractInput(
        question=material.record.question,
        sentences=_numbered(part),
        headings=frozenset(sentence.number for sentence in part if is_heading(answer, sentence)),
        surroundings=_numbered(surroundings),
        earlier=tuple(
            TurnText(question=turn.question, answer=turn.answer) for turn in material.record.earlier_turns
        ),
    )
    reply = await material.judge.ask(EXTRACT.request(given, material, again=again))
    return _Found((_Part.check(reply.value, asked=_numbers(part), shown=(*part, *surroundings)),))


def _fail(part: Sequence[Sentence], error: JudgeCutOff) -> _Found:
    # claims that nobody sees would make the score better
    raise error


def _render(given: ExtractInput, code: str) -> str:
    around = [numbered_section("surroundings", given.surroundings)] if given.surroundings else []
    asked = ("question", [given.question or "(not recorded)"])
    before = [(_EARLIER, [*_lines(given.earlier)])] if given.earlier else []
    return fenced(code, [*before, asked, *around, numbered_section("answer", given.sentences)])


def _lines(turns: Iterable[TurnText]) -> Iterator[str]:
    for turn in turns:
        if turn.question:
            yield f"question: {' '.join(turn.question.split())}"
        yield f"answer: {' '.join(turn.answer.split())}"


EXTRACT: Final = Step(
    name="extract",
    prompts=("extract",),
    reply=ExtractReply,
    render=_render,
    output_tokens=lambda given: output_tokens([sentence.text for sentence in given.sentences]),
    run=extract_claims,
)


@dataclass(frozen=True, slots=True)
class _Found(PartialAnswers[Sentence]):
    """The statements of several replies."""

    parts: tuple[_Part, ...]

    def joined(self, other: _Found) -> _Found:
        """Add the statements of a further reply; those of one that cites unknown sentences go."""
        return _Found((*(part for part in self.parts if not part.rejected), *other.parts))

    def missing(self, items: Sequence[Sentence]) -> Sequence[Sentence]:
        """Return the sentences that no statement cites; none if the answer is a refusal.

        If a statement cites no sentence that exists, the reply's numbers may all be shifted.
        """
        if any(part.rejected for part in self.parts):
            return items
        cited = {number for part in self.parts for number in part.cited}
        left_out = [sentence for sentence in items if sentence.number not in cited]
        return () if all(part.refusal for part in self.parts) else left_out

    def without_missing(self, items: Sequence[Sentence]) -> _Found:
        """Leave it at that: a sentence may state nothing.

        Raises:
            JudgeNonsense: a statement cites no sentence that exists, again.
        """
        if any(part.rejected for part in self.parts):
            raise JudgeNonsense(
                "the judge cites sentences that the answer does not have, twice", usage=Usage()
            )
        return self


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
