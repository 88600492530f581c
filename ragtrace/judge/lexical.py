"""The embedded judge: compares words, names and numbers. It needs no key, no download and no network.

It is a heuristic, and says so on every score (``ragtrace.judge.provider="lexical"``). It decides only where
the words speak clearly, and abstains from the rest:

- *not mentioned*: a number of the claim is nowhere in the chunks, or most of its names are not;
- *supported*: a passage of a few sentences covers nearly all content words of the claim, and no number or
  name is missing;
- never *contradicted*: that takes understanding.

Its rules are for English. It has no learnt weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from ragtrace.judge.opening import JudgeSettings
from ragtrace.judge.phrases import is_meta, is_refusal, without_source
from ragtrace.judge.words import (
    claimed_numbers,
    content_stems,
    has_negation,
    names,
    numbers,
    stem,
    word_count,
)
from ragtrace.metrics.forms import (
    ClaimKind,
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenVerdict,
    NumberedText,
    VerifyInput,
    VerifyReply,
)
from ragtrace.metrics.sentences import split_sentences
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

__all__ = ["LexicalJudge", "claim_kind", "open_lexical"]

ReplyT = TypeVar("ReplyT", bound=BaseModel)

SUPPORT_COVERAGE = 0.8
WINDOW_SENTENCES = 3
MIN_CONTENT_WORDS = 2


class LexicalJudge:
    """Decides by comparing words, names and numbers; abstains where they do not speak clearly."""

    identity = JudgeIdentity(provider="lexical", model="lexical-v1")

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request by computing."""
        if request.step == "extract":
            reply: JudgeReply[Any] = _extract(cast(ExtractInput, request.inputs))
        else:
            reply = await _verify(cast(VerifyInput, request.inputs))
        return cast("JudgeReply[ReplyT]", reply)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def open_lexical(settings: JudgeSettings) -> Judge:
    """Open ``lexical``."""
    return LexicalJudge()


def _extract(given: ExtractInput) -> JudgeReply[ExtractReply]:
    claims = [
        ExtractedClaim(
            id=number,
            sentence_ids=[sentence.number],
            text=without_source(sentence.text),
            kind=claim_kind(sentence.text),
            relevance="direct",
        )
        for number, sentence in enumerate(given.sentences, start=1)
    ]
    kinds = {claim.kind for claim in claims}
    reply = ExtractReply(claims=claims, refusal="refusal" in kinds and "factual" not in kinds)
    return JudgeReply(value=reply, usage=Usage(calls=1))


def claim_kind(sentence: str) -> ClaimKind:
    """Tell by its wording whether a sentence states something that can be checked."""
    if is_refusal(sentence):
        return "refusal"
    return "meta" if is_meta(sentence) or _is_heading(sentence) else "factual"


def _is_heading(sentence: str) -> bool:
    return word_count(sentence) <= 4 and sentence.strip(" *_")[-1:] not in ".!"


async def _verify(given: VerifyInput) -> JudgeReply[VerifyReply]:
    chunks = [(chunk.number, _prepared(chunk.text)) for chunk in given.chunks]
    verdicts: list[GivenVerdict] = []
    notes: dict[int, str] = {}
    for claim in given.claims:
        await asyncio.sleep(0)  # long answers must not keep the event loop to themselves
        finding = _decide(claim, chunks)
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


_Chunks: TypeAlias = Sequence[tuple[int, tuple[_Sentence, ...]]]


@lru_cache(maxsize=256)
def _prepared(text: str) -> tuple[_Sentence, ...]:
    return tuple(
        _Sentence(text=s.text, stems=content_stems(s.text), numbers=numbers(s.text))
        for s in split_sentences(text)
    )


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What must be found of a claim."""

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


def _decide(claim: NumberedText, chunks: _Chunks) -> GivenVerdict | str:
    """Return a verdict, or why there is none."""
    claimed = _Claimed.of(claim.text)
    sentences = [sentence for _, prepared in chunks for sentence in prepared]
    if absent := claimed.numbers.difference(*(sentence.numbers for sentence in sentences)):
        return _silent(claim, f"no chunk has the number {', '.join(sorted(absent))}")
    strange = [name for name in claimed.names if not any(stem(name) in s.stems for s in sentences)]
    if len(strange) * 2 > len(claimed.names):
        return _silent(claim, f"no chunk names {', '.join(strange)}")
    if strange:
        return f"no chunk names {', '.join(strange)}, but that may be another word for the same"
    return _supported(claim, claimed, chunks)


def _supported(claim: NumberedText, claimed: _Claimed, chunks: _Chunks) -> GivenVerdict | str:
    if len(claimed.stems) < MIN_CONTENT_WORDS:
        return "too few content words to compare"
    covered, number, window = max(_windows(claimed, chunks), key=lambda found: found[0], default=(0, 0, ()))
    if covered < SUPPORT_COVERAGE * len(claimed.stems):
        share = covered / len(claimed.stems)
        return f"at best {share:.0%} of the words stand together: neither clearly there nor clearly missing"
    best = max(window, key=lambda sentence: len(claimed.stems & sentence.stems))
    if claimed.negated != has_negation(best.text):
        return "the words stand together, but only one side negates"
    return GivenVerdict(id=claim.number, chunks=[number], quote=best.text, label="supported", reason="")


def _windows(claimed: _Claimed, chunks: _Chunks) -> Iterator[tuple[int, int, tuple[_Sentence, ...]]]:
    """Yield passages that hold the numbers of the claim, with how many of its words they cover."""
    for number, sentences in chunks:
        for start in range(len(sentences)):
            window = sentences[start : start + WINDOW_SENTENCES]
            if not claimed.numbers.difference(*(sentence.numbers for sentence in window)):
                missing = claimed.stems.difference(*(sentence.stems for sentence in window))
                yield len(claimed.stems) - len(missing), number, window


def _silent(claim: NumberedText, reason: str) -> GivenVerdict:
    return GivenVerdict(id=claim.number, chunks=[], quote="", label="not_mentioned", reason=reason[:400])
