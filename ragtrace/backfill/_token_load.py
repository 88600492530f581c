"""The token load of a record, estimated from the lengths of its texts without asking a judge.

The record is evaluated with a simulated judge that answers like a terse, a typical or a wordy model. So
steps, batches and canary claims are those of a real run; only the model's replies are assumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError
from ragtrace.judge.phrases import is_meta, is_refusal
from ragtrace.judge.replies import reply_schema
from ragtrace.judge_forms import (
    ChunksInput,
    ChunksReply,
    ClaimKind,
    CriteriaInput,
    CriteriaReply,
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenCriterion,
    GivenGrade,
    GivenRelevance,
    GivenTruths,
    GivenVerdict,
    NumberedText,
    QuestionsInput,
    QuestionsReply,
    RelevanceInput,
    RelevanceReply,
    RetrievalInput,
    RetrievalReply,
    TruthsInput,
    TruthsReply,
    VerifyInput,
    VerifyReply,
)
from ragtrace.metrics.asking import batches
from ragtrace.model import Evaluation, JudgeIdentity, RagRecord, Usage
from ragtrace.pipeline import Evaluator
from ragtrace.ports import JudgeReply, JudgeRequest, YesProbability
from ragtrace.sentences import split_sentences

ReplyT = TypeVar("ReplyT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoad:
    """Requests, and tokens of prompts and replies, as real numbers."""

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
        """The load as one number: an output token counts as four input tokens in cost and time."""
        return self.input_tokens + 4 * self.output_tokens

    @property
    def usage(self) -> Usage:
        """The same in integers."""
        return Usage(
            calls=ceil(self.calls),
            input_tokens=ceil(self.input_tokens),
            output_tokens=ceil(self.output_tokens),
        )

    @classmethod
    def of(cls, usage: Usage) -> TokenLoad:
        """Return the load of a usage."""
        return cls(calls=usage.calls, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyProfile:
    """Assumptions about a model's replies and its provider's token counts."""

    sentences_a_claim: int
    claims_a_place: int
    """Claims per group of sentences."""
    with_claims: float
    """Share of the answers with a factual claim."""
    times: float
    """Requests per question on average, until the reply has the requested form."""
    quote: float
    """Length of a quote relative to its claim."""
    reason_chars: int
    characters_a_token: float
    """ASCII characters per token in prompts."""
    reply_characters_a_token: float
    """ASCII characters per token in replies, which are JSON."""
    bytes_a_token: float
    """UTF-8 bytes per token of other characters."""
    counts_schema: bool
    """Whether the reply's schema counts as input tokens."""

    def tokens(self, text: str, *, reply: bool = False) -> float:
        """Return the estimated number of tokens of a text."""
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
    """The reply's size does not follow from the lengths of texts."""

    error_type = "unsized"


async def size_of(
    record: RagRecord, *, evaluator: Evaluator, reply_profile: ReplyProfile
) -> tuple[Evaluation, TokenLoad]:
    """Return a record's load for a judge with this reply profile, and the simulated evaluation."""
    profiled = _ProfiledJudge(evaluator.judge.identity, reply_profile)
    simulated = replace(evaluator, judge=profiled, second_judge=None, embedder=None)
    evaluation = await simulated.evaluate(record)
    return evaluation, profiled.load


class _ProfiledJudge:
    def __init__(self, identity: JudgeIdentity, reply_profile: ReplyProfile) -> None:
        self._identity = identity
        self._reply_profile = reply_profile
        self.load = TokenLoad()

    @property
    def identity(self) -> JudgeIdentity:
        """The simulated judge; canary claims and combined requests depend on it."""
        return self._identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Return the smallest reply that the steps accept."""
        reply_profile = self._reply_profile
        asked = reply_profile.tokens(f"{request.system}{request.user}")
        value = _value(request, reply_profile)
        if reply_profile.counts_schema and value is not None:
            asked += reply_profile.tokens(_schema(request.reply_type))
        output_tokens = 0.0 if value is None else reply_profile.tokens(value.model_dump_json(), reply=True)
        share = reply_profile.with_claims if request.step in _OF_CLAIMS else 1.0
        self.load += TokenLoad(calls=1, input_tokens=asked, output_tokens=output_tokens) * (
            reply_profile.times * share
        )
        if value is None:
            raise UnknownLoad("the size of the reply to this request cannot be estimated")
        return JudgeReply(value=request.reply_type.model_validate(value), usage=Usage())

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


_OF_CLAIMS: Final = frozenset({"verify", "relevance"})
"""Steps that are skipped if an answer states nothing."""


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
            found = [
                GivenRelevance(id=statement.number, relevance="direct") for statement in given.statements
            ]
            return RelevanceReply(statements=found)
        case TruthsInput() as given if request.reply_type is TruthsReply:
            return TruthsReply(
                chunks=[GivenTruths(id=chunk.number, truths=_facts(chunk)) for chunk in given.chunks]
            )
        case CriteriaInput() as given if request.reply_type is CriteriaReply:
            reason = _reason(reply_profile)
            met = [
                GivenCriterion(id=each.number, quote=reason, reason=reason, met=True)
                for each in given.criteria
            ]
            return CriteriaReply(criteria=met)
        case QuestionsInput() as given if request.reply_type is QuestionsReply:
            return QuestionsReply(questions=["What is it?"], noncommittal=False)
    if request.reply_type is YesProbability:
        return YesProbability(p_yes=1.0)
    return None


def _facts(chunk: NumberedText) -> list[str]:
    """Return a chunk's sentences: its facts repeat most of its words."""
    return [sentence.text[:1000] for sentence in split_sentences(chunk.text)][:200]


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
    for part in batches(sentences, reply_profile.sentences_a_claim):
        text, kind = part[0].text, _kind(part[0].text)
        for time in range(reply_profile.claims_a_place):
            yield [sentence.number for sentence in part], f"{text} {'again' * time}", kind


def _kind(sentence: str) -> ClaimKind:
    if is_refusal(sentence):
        return "refusal"
    return "meta" if is_meta(sentence) else "factual"


def _verdicts(
    claims: Sequence[NumberedText], chunks: Sequence[NumberedText], reply_profile: ReplyProfile
) -> list[GivenVerdict]:
    """Support and quote every claim that a chunk contains verbatim, so that canary claims pass."""
    texts = [(chunk.number, " ".join(chunk.text.split())) for chunk in chunks]
    return [_verdict(claim, texts, reply_profile) for claim in claims]


def _verdict(
    claim: NumberedText, texts: Sequence[tuple[int, str]], reply_profile: ReplyProfile
) -> GivenVerdict:
    found = [number for number, text in texts if claim.text in text][:1]
    length = min(1000, int(len(claim.text) * reply_profile.quote))
    if found and length < len(claim.text):
        quote = claim.text[:length].rpartition(" ")[0] or claim.text[:1000]
    else:
        quote = claim.text[:1000] if found else (claim.text * ceil(reply_profile.quote))[:length]
    return GivenVerdict(
        id=claim.number,
        chunks=found,
        quote=quote,
        label="supported" if found else "not_mentioned",
        reason=_reason(reply_profile),
    )


def _grades(chunks: Sequence[NumberedText], reply_profile: ReplyProfile) -> list[GivenGrade]:
    return [GivenGrade(id=chunk.number, reason=_reason(reply_profile), relevance=1) for chunk in chunks]


def _reason(reply_profile: ReplyProfile) -> str:
    return "x" * reply_profile.reason_chars


@lru_cache(maxsize=64)
def _schema(reply_type: type[BaseModel]) -> str:
    return json.dumps(reply_schema(reply_type))
