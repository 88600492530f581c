"""The embedded judge: compares words, names and numbers. It needs no key, no download and no network.

It is a heuristic; every score says so (``ragtrace.judge.provider="lexical"``). It decides only clear cases
and abstains otherwise:

- *unsupported*: a number of the claim is nowhere in the chunks, or most of its names are not;
- *supported*: a passage of a few sentences covers nearly all content words of the claim, and no number or
  name is missing;
- never *contradicted*: that needs understanding.

The relevance of a statement or chunk to the question needs understanding too: shared words explain why a
chunk was retrieved, not whether it helps. The judge abstains from relevance, so that there is no score, and
generates no questions.

Its rules are for English. It has no trained weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import or_
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from ragtrace.errors import JudgeUnable
from ragtrace.judge._words import (
    claimed_numbers,
    content_stems,
    has_negation,
    names,
    numbers,
    stem,
    word_count,
)
from ragtrace.judge.factory import JudgeSettings
from ragtrace.judge.layers import limited
from ragtrace.judge.phrases import is_meta, is_refusal, without_source
from ragtrace.judge_forms import (
    ChunksInput,
    ChunksReply,
    ClaimKind,
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenVerdict,
    NumberedText,
    RelevanceInput,
    RelevanceReply,
    VerifyInput,
    VerifyReply,
)
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.sentences import split_sentences

ReplyT = TypeVar("ReplyT", bound=BaseModel)

SUPPORT_COVERAGE = 0.8
WINDOW_SENTENCES = 3
MIN_CONTENT_WORDS = 2
_NO_WORTH = "comparing words does not tell what it is worth to the question"
SENTENCES_A_TURN = 50


class LexicalJudge:
    """Decides by comparing words, names and numbers; abstains from unclear cases."""

    identity = JudgeIdentity(provider="lexical", model="lexical-v2", computes=True, contradicts=False)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request by computing.

        Raises:
            JudgeUnable: comparing words cannot answer it.
        """
        reply: JudgeReply[Any]
        match request.inputs:
            case ExtractInput() as given if request.reply_type is ExtractReply:
                reply = _extract(given)
            case VerifyInput() as given if request.reply_type is VerifyReply:
                reply = await _verify(given)
            case ChunksInput() as given:
                reply = _abstaining(ChunksReply(chunks=[]), (chunk.number for chunk in given.chunks))
            case RelevanceInput() as given:
                reply = _abstaining(
                    RelevanceReply(statements=[]), (statement.number for statement in given.statements)
                )
            case _:
                what = f"the lexical judge cannot answer the step {request.step!r} in this form"
                raise JudgeUnable(what, usage=Usage())
        return cast("JudgeReply[ReplyT]", reply)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def open_lexical(settings: JudgeSettings) -> Judge:
    """Open ``lexical``."""
    return limited(LexicalJudge(), 1)  # concurrency makes it no faster and blocks the event loop longer


def _extract(given: ExtractInput) -> JudgeReply[Any]:
    claims = [
        ExtractedClaim(
            id=number,
            sentence_ids=[sentence.number],
            text=without_source(sentence.text),
            kind=claim_kind(sentence.text),
        )
        for number, sentence in enumerate(given.sentences, start=1)
    ]
    kinds = {claim.kind for claim in claims}
    reply = ExtractReply(claims=claims, refusal="refusal" in kinds and "factual" not in kinds)
    return JudgeReply(value=reply, usage=Usage(calls=1))


def _abstaining(value: BaseModel, items: Iterable[int]) -> JudgeReply[Any]:
    """Return a reply that abstains from these items' relevance to the question."""
    abstained = frozenset(items)
    notes = dict.fromkeys(abstained, _NO_WORTH)
    return JudgeReply(value=value, usage=Usage(calls=1), abstained=abstained, notes=notes)


def claim_kind(sentence: str) -> ClaimKind:
    """Classify a sentence by its wording: does it state something that can be checked?"""
    if is_refusal(sentence):
        return "refusal"
    return "meta" if is_meta(sentence) or _is_heading(sentence) else "factual"


def _is_heading(sentence: str) -> bool:
    return word_count(sentence) <= 4 and sentence.strip(" *_")[-1:] not in ".!"


async def _verify(given: VerifyInput) -> JudgeReply[VerifyReply]:
    passages = await _Passages.of(given.chunks)
    verdicts: list[GivenVerdict] = []
    notes: dict[int, str] = {}
    for claim in given.claims:
        await asyncio.sleep(0)  # long answers must not block the event loop
        finding = _decide(claim, passages)
        if isinstance(finding, str):
            notes[claim.number] = finding
        else:
            verdicts.append(finding)
    return JudgeReply(
        value=VerifyReply(verdicts=verdicts), usage=Usage(calls=1), abstained=frozenset(notes), notes=notes
    )


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    stems: frozenset[str]
    numbers: frozenset[str]


@lru_cache(maxsize=256)
def _split(text: str) -> tuple[str, ...]:
    return tuple(sentence.text for sentence in split_sentences(text))


@lru_cache(maxsize=8192)
def _prepared(text: str) -> _Sentence:
    return _Sentence(text=text, stems=content_stems(text), numbers=numbers(text))


@dataclass(frozen=True, slots=True)
class _Passages:
    """The sentences of the chunks, indexed by content."""

    sentences: list[tuple[int, _Sentence]] = field(default_factory=list)
    """Sentences with the number of their chunk."""
    places: dict[str, list[int]] = field(default_factory=dict)
    """Positions of the sentences with a stem."""
    numbers: set[str] = field(default_factory=set)

    @classmethod
    async def of(cls, chunks: Iterable[NumberedText]) -> _Passages:
        passages = cls()
        for chunk in chunks:
            for position, text in enumerate(_split(chunk.text)):
                if position % SENTENCES_A_TURN == 0:
                    await asyncio.sleep(0)
                passages.add(chunk.number, _prepared(text))
        return passages

    def add(self, number: int, sentence: _Sentence) -> None:
        for held in sentence.stems:
            self.places.setdefault(held, []).append(len(self.sentences))
        self.numbers.update(sentence.numbers)
        self.sentences.append((number, sentence))

    def window(self, start: int) -> tuple[int, range]:
        """Return a chunk's number and the range of consecutive sentences from ``start``."""
        number, end = self.sentences[start][0], start + 1
        last = min(start + WINDOW_SENTENCES, len(self.sentences))
        while end < last and self.sentences[end][0] == number:
            end += 1
        return number, range(start, end)

    def holds(self, window: range, wanted: frozenset[str]) -> bool:
        """Return whether a window contains all these numbers."""
        return not wanted.difference(*(self.sentences[at][1].numbers for at in window))


@dataclass(frozen=True, slots=True)
class _Claimed:
    """The parts of a claim that a chunk must contain."""

    stems: frozenset[str]
    numbers: frozenset[str]
    names: tuple[str, ...]
    negated: bool

    @classmethod
    def of(cls, text: str) -> _Claimed:
        bare = without_source(text)
        return cls(
            stems=content_stems(bare),
            numbers=claimed_numbers(bare),
            names=names(bare),
            negated=has_negation(bare),
        )


def _decide(claim: NumberedText, passages: _Passages) -> GivenVerdict | str:
    """Return a verdict, or the reason for abstaining."""
    claimed = _Claimed.of(claim.text)
    if absent := claimed.numbers - passages.numbers:
        return _silent(claim, f"no chunk has the number {', '.join(sorted(absent))}")
    strange = [name for name in claimed.names if stem(name) not in passages.places]
    if len(strange) * 2 > len(claimed.names):
        return _silent(claim, f"no chunk names {', '.join(strange)}")
    if strange:
        return f"no chunk names {', '.join(strange)}, but that may be another word for the same"
    return _supported(claim, claimed, passages)


def _supported(claim: NumberedText, claimed: _Claimed, passages: _Passages) -> GivenVerdict | str:
    if len(claimed.stems) < MIN_CONTENT_WORDS:
        return "too few content words to compare"
    covered, number, window = _best_window(claimed, passages)
    if covered < SUPPORT_COVERAGE * len(claimed.stems):
        share = covered / len(claimed.stems)
        return f"at best {share:.0%} of the words stand together: neither clearly there nor clearly missing"
    sentences = [passages.sentences[at][1] for at in window]
    best = max(sentences, key=lambda sentence: len(claimed.stems & sentence.stems))
    if claimed.negated != has_negation(best.text):
        return "the words stand together, but only one side negates"
    return GivenVerdict(id=claim.number, chunks=[number], quote=best.text, label="supported", reason="")


def _best_window(claimed: _Claimed, passages: _Passages) -> tuple[int, int, range]:
    """Return the number of claim words that the best window covers, its chunk and the window.

    The window contains all numbers of the claim; ties go to the first window.
    """
    held: dict[int, int] = {}  # by sentence, a bit for each stem of the claim
    for order, wanted in enumerate(claimed.stems):
        for at in passages.places.get(wanted, ()):
            held[at] = held.get(at, 0) | 1 << order
    best = (0, 0, range(0))
    for start in sorted({start for at in held for start in range(max(0, at - WINDOW_SENTENCES + 1), at + 1)}):
        number, window = passages.window(start)
        covered = reduce(or_, (held.get(at, 0) for at in window)).bit_count()
        if covered > best[0] and passages.holds(window, claimed.numbers):
            best = (covered, number, window)
    return best


def _silent(claim: NumberedText, reason: str) -> GivenVerdict:
    return GivenVerdict(id=claim.number, chunks=[], quote="", label="not_mentioned", reason=reason[:400])
