"""How much a record will ask of a judge, told from the lengths of its texts: no judge is asked.

The record is evaluated with a stand-in that answers as a terse, a likely or a wordy model would. So the
steps, batches and planted claims are those of a real run, and only what the model says is assumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError
from ragtrace.evaluation import evaluate
from ragtrace.judge.phrases import is_meta, is_refusal
from ragtrace.judge.replies import reply_schema
from ragtrace.metrics.forms import (
    ChunksInput,
    ChunksReply,
    ClaimKind,
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenGrade,
    GivenRelevance,
    GivenVerdict,
    NumberedText,
    QuestionsInput,
    QuestionsReply,
    RelevanceInput,
    RelevanceReply,
    RetrievalInput,
    RetrievalReply,
    VerifyInput,
    VerifyReply,
)
from ragtrace.metrics.judge_calls import batches
from ragtrace.model import Evaluation, JudgeIdentity, RagRecord, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, Metric

ReplyT = TypeVar("ReplyT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoad:
    """What a judge is asked: requests, and tokens of prompts and replies. They need not be whole."""

    calls: float = 0
    input_tokens: float = 0
    output_tokens: float = 0

    def __add__(self, other: TokenLoad) -> TokenLoad:
        return TokenLoad(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )

    def __mul__(self, times: float) -> TokenLoad:
        return TokenLoad(
            calls=self.calls * times,
            input_tokens=self.input_tokens * times,
            output_tokens=self.output_tokens * times,
        )

    @property
    def weight(self) -> float:
        """One number for all of it: a token of a reply costs and takes as much as some four of a prompt."""
        return self.input_tokens + 4 * self.output_tokens

    @property
    def usage(self) -> Usage:
        """The same in whole numbers."""
        return Usage(
            calls=ceil(self.calls),
            input_tokens=ceil(self.input_tokens),
            output_tokens=ceil(self.output_tokens),
        )

    @classmethod
    def of(cls, usage: Usage) -> TokenLoad:
        """Return what was asked."""
        return cls(calls=usage.calls, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyProfile:
    """How a model may answer, and how its provider may count."""

    sentences_a_claim: int
    claims_a_place: int
    """How many claims rest on the same sentences."""
    with_claims: float
    """Share of the answers that state anything to look up."""
    times: float
    """How often a question is asked on average, until it is answered in the form that was asked for."""
    quote: float
    """Length of a quote, as a multiple of the claim's."""
    reason_chars: int
    characters_a_token: float
    """ASCII, in prompts."""
    reply_characters_a_token: float
    """ASCII, in replies, which are JSON."""
    bytes_a_token: float
    """Of other characters in UTF-8."""
    counts_schema: bool
    """Whether the form of the reply counts as a part of the prompt."""

    def tokens(self, text: str, *, reply: bool = False) -> float:
        """Return how many tokens a text is taken for."""
        ascii_chars = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
        others = 0 if len(text) == ascii_chars else len(text.encode("utf-8", "replace")) - ascii_chars
        a_token = self.reply_characters_a_token if reply else self.characters_a_token
        return ascii_chars / a_token + others / self.bytes_a_token


# Measured with o200k and cl100k on texts of RAGTruth and WiCE: 2.9 to 6.2 ASCII characters a token in a text,
# 4.4 to 5.0 at the median of each corpus; 3.1 in JSON; in eight other languages 2.5 to 8.3 bytes a token.
LOW: Final = ReplyProfile(
    sentences_a_claim=3,
    claims_a_place=1,
    with_claims=0.5,
    times=1,
    quote=0.3,
    reason_chars=0,
    characters_a_token=5.5,
    reply_characters_a_token=5.0,
    bytes_a_token=8.5,
    counts_schema=False,
)
LIKELY: Final = ReplyProfile(
    sentences_a_claim=1,
    claims_a_place=1,
    with_claims=1.0,
    times=1,
    quote=0.8,
    reason_chars=40,
    characters_a_token=4.4,
    reply_characters_a_token=3.6,
    bytes_a_token=4.5,
    counts_schema=True,
)
HIGH: Final = ReplyProfile(
    sentences_a_claim=1,
    claims_a_place=2,
    with_claims=1.0,
    times=1.5,
    quote=1.5,
    reason_chars=150,
    characters_a_token=3.0,
    reply_characters_a_token=2.8,
    bytes_a_token=2.5,
    counts_schema=True,
)


class UnknownLoad(JudgeError):
    """What a model says to this question cannot be told from the lengths of texts."""

    error_type = "unsized"


async def size_of(
    record: RagRecord, *, metrics: Sequence[Metric], judge: Judge, reply_profile: ReplyProfile
) -> tuple[Evaluation, TokenLoad]:
    """Return what a record will ask of a judge that answers in this manner, and how it would end."""
    profiled = _ProfiledJudge(judge.identity, reply_profile)
    evaluation = await evaluate(record, metrics=metrics, judge=profiled)
    return evaluation, profiled.load


class _ProfiledJudge:
    """Answers in the place of a judge, and adds up how much it was asked."""

    def __init__(self, identity: JudgeIdentity, reply_profile: ReplyProfile) -> None:
        self._identity = identity
        self._reply_profile = reply_profile
        self.load = TokenLoad()

    @property
    def identity(self) -> JudgeIdentity:
        """Who is stood in for: what is planted, and which steps share a call, hangs on it."""
        return self._identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer as little as the steps need to go on."""
        reply_profile = self._reply_profile
        asked = reply_profile.tokens(f"{request.system}{request.user}")
        value = _value(request, reply_profile)
        if reply_profile.counts_schema and value is not None:
            asked += reply_profile.tokens(_schema(request.reply_type))
        told = 0.0 if value is None else reply_profile.tokens(value.model_dump_json(), reply=True)
        share = reply_profile.with_claims if request.step in _OF_CLAIMS else 1.0
        self.load += TokenLoad(calls=1, input_tokens=asked, output_tokens=told) * (
            reply_profile.times * share
        )
        if value is None:
            raise UnknownLoad("only a judge can say how it would answer this")
        return JudgeReply(value=request.reply_type.model_validate(value), usage=Usage())

    async def aclose(self) -> None:
        """Hold nothing."""


_OF_CLAIMS: Final = frozenset({"verify", "relevance"})
"""Steps that are left out where an answer states nothing."""


def _value(request: JudgeRequest[Any], reply_profile: ReplyProfile) -> BaseModel | None:
    match request.inputs:
        case ExtractInput() as given if request.reply_type is ExtractReply:
            return _extracted(given, reply_profile)
        case VerifyInput() as given if request.reply_type is VerifyReply:
            return VerifyReply(verdicts=_verdicts(given.claims, given.chunks, reply_profile))
        case ChunksInput() as given if request.reply_type is ChunksReply:
            return ChunksReply(chunks=_grades(given.chunks, reply_profile))
        case RetrievalInput() as given if request.reply_type is RetrievalReply:
            return RetrievalReply(
                chunks=_grades(given.chunks, reply_profile),
                verdicts=_verdicts(given.claims, given.chunks, reply_profile),
            )
        case RelevanceInput() as given if request.reply_type is RelevanceReply:
            found = [GivenRelevance(id=each.number, relevance="direct") for each in given.statements]
            return RelevanceReply(statements=found)
        case QuestionsInput() as given if request.reply_type is QuestionsReply:
            return QuestionsReply(questions=["What is it?"], noncommittal=False)
    return None


def _extracted(given: ExtractInput, reply_profile: ReplyProfile) -> ExtractReply:
    stated = list(_stated(given.sentences, reply_profile))
    claims = [
        ExtractedClaim(id=number, sentence_ids=sentences[:16], text=text[:1000], kind=kind)
        for number, (sentences, text, kind) in enumerate(stated[:400], start=1)
    ]
    kinds = {claim.kind for claim in claims}
    return ExtractReply(claims=claims, refusal="refusal" in kinds and "factual" not in kinds)


def _stated(
    sentences: Sequence[NumberedText], reply_profile: ReplyProfile
) -> Iterator[tuple[list[int], str, ClaimKind]]:
    """Yield the numbers of the sentences of each statement, its text and kind."""
    for part in batches(sentences, reply_profile.sentences_a_claim):
        text, kind = part[0].text, _kind(part[0].text)
        for time in range(reply_profile.claims_a_place):
            yield [each.number for each in part], f"{text} {'again' * time}", kind


def _kind(sentence: str) -> ClaimKind:
    if is_refusal(sentence):
        return "refusal"
    return "meta" if is_meta(sentence) else "factual"


def _verdicts(
    claims: Sequence[NumberedText], chunks: Sequence[NumberedText], reply_profile: ReplyProfile
) -> list[GivenVerdict]:
    """Support every claim that stands in a chunk, word for word: so the planted ones come out right."""
    texts = [" ".join(chunk.text.split()) for chunk in chunks]
    return [
        GivenVerdict(
            id=claim.number,
            chunks=[],
            quote=(claim.text * ceil(reply_profile.quote))[
                : min(1000, int(len(claim.text) * reply_profile.quote))
            ],
            label="supported" if any(claim.text in text for text in texts) else "not_mentioned",
            reason=_reason(reply_profile),
        )
        for claim in claims
    ]


def _grades(chunks: Sequence[NumberedText], reply_profile: ReplyProfile) -> list[GivenGrade]:
    return [GivenGrade(id=chunk.number, reason=_reason(reply_profile), relevance=1) for chunk in chunks]


def _reason(reply_profile: ReplyProfile) -> str:
    return "x" * reply_profile.reason_chars


@lru_cache(maxsize=64)
def _schema(reply_type: type[BaseModel]) -> str:
    return json.dumps(reply_schema(reply_type))
