"""A judge that says what it is told to, in every form that is asked for, and costs money.

Its address is ``LIKELY`` and a name: two names are two models. ``EMBEDDER`` and a name is an embedder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, cast

from ragtrace.judge import JudgeSettings, ScriptedJudge
from ragtrace.judge_forms import YesNoInput
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Embedder, Embeddings, Judge, JudgeReply, JudgeRequest, ReplyT, YesProbability

LIKELY: Final = f"{__name__}:open_likely:"
EMBEDDER: Final = f"{__name__}:open_embedder:"
_USAGE: Final = Usage(calls=1, input_tokens=1_000, output_tokens=100)


def open_likely(settings: JudgeSettings) -> Judge:
    """Open a judge of the provider ``likely``."""
    identity = JudgeIdentity(provider="likely", model=settings.argument, parameters=settings.parameters)
    return _LikelyJudge(identity)


def open_embedder(settings: JudgeSettings) -> Embedder:
    """Open an embedder of the provider ``likely``."""
    return _LikelyEmbedder(JudgeIdentity(provider="likely", model=settings.argument))


class _LikelyJudge:
    def __init__(self, identity: JudgeIdentity) -> None:
        self.identity = identity
        self._inner = ScriptedJudge()

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        if request.reply_type is YesProbability:
            given = cast(YesNoInput, request.inputs)
            is_said = any(given.claim in chunk.text for chunk in given.chunks)
            value = YesProbability(p_yes=0.9 if is_said else 0.1)
            return JudgeReply(value=cast(ReplyT, value), usage=_USAGE)
        reply = await self._inner.ask(request)
        return JudgeReply(value=reply.value, usage=_USAGE)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LikelyEmbedder:
    def __init__(self, identity: JudgeIdentity) -> None:
        self.identity = identity

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        vectors = tuple(
            tuple(byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:8]) for text in texts
        )
        return Embeddings(vectors=vectors, usage=Usage(calls=1, input_tokens=10))

    async def aclose(self) -> None:
        """Nothing is open."""
