"""The floor of judge cards: one feature, the share of a claim's content words that are in the chunks.

A judge that is no better than this is not worth its price. It is measured beside others, and judges nothing
else.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from ragtrace.errors import JudgeUnable
from ragtrace.judge._support_features import ClaimedWords
from ragtrace.judge._word_index import WordIndex
from ragtrace.judge_forms import GivenVerdict, VerifyInput, VerifyReply
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

SUPPORTED_FROM: Final = 0.75
"""The cut of the share; chosen on the development files of RAGTruth."""


class WordShareJudge:
    """Calls a claim supported if three quarters of its content words are anywhere in the chunks."""

    identity = JudgeIdentity(provider="floor", model="word-share", computes=True, contradicts=False)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer a request for verdicts.

        Raises:
            JudgeUnable: it asks for something else.
        """
        if not isinstance(request.inputs, VerifyInput) or request.reply_type is not VerifyReply:
            raise JudgeUnable(f"the floor only gives verdicts, no {request.step!r}", usage=Usage())
        return cast("JudgeReply[ReplyT]", await _verify(request.inputs))

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


async def _verify(given: VerifyInput) -> JudgeReply[Any]:
    index = await WordIndex.of(given.chunks)
    shares: dict[int, float] = {}
    for claim in given.claims:
        await asyncio.sleep(0)
        stems = ClaimedWords.of(claim.text, index.grammar).content
        shares[claim.number] = sum(held in index.places for held in stems) / len(stems) if stems else 1.0
    cited = [given.chunks[0].number] if given.chunks else []
    verdicts = [
        GivenVerdict(id=number, chunks=cited, quote="", label="supported", reason="")
        if share >= SUPPORTED_FROM
        else GivenVerdict(id=number, chunks=[], quote="", label="not_mentioned", reason="")
        for number, share in shares.items()
    ]
    return JudgeReply(value=VerifyReply(verdicts=verdicts), usage=Usage(calls=1), support=shares)
