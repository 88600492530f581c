"""Two judges around a transcript: one that writes down what another says, and one that only repeats it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeError, JudgeNonsense, JudgeUnable, NotInTranscript
from ragtrace.judge.content import as_json, asked, digest, read_reply, write_reply
from ragtrace.judge.layers import Layer
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.transcripts.file import Said, Transcripts

__all__ = ["recorded", "replayed"]

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_FORM: Final = 1
"""Part of every key: changes when what is kept is written in another form."""
_SAID: Final = {each.__name__: each for each in (JudgeNonsense, JudgeCutOff, JudgeUnable)}
"""Failures that are an answer of a kind: what is asked next depends on them. The others are silence."""
_WANTS_A_DRAW: Final = 0.1
"""Above this temperature a request wants one draw of several: each is kept."""


def recorded(judge: Judge, transcripts: Transcripts) -> Judge:
    """Write down what the judge says, and do not ask it what it has said to the very same request before.

    Such a reply has ``Usage(calls=0)``. A request that wants one draw of several is always asked.
    """
    return _Recorded(judge, transcripts)


def replayed(identity: JudgeIdentity, transcripts: Transcripts) -> Judge:
    """Return a judge that repeats what this one said, with what that cost then, and is never asked.

    It raises `NotInTranscript` for everything else.
    """
    return _Replayed(identity, transcripts)


class _Recorded(Layer):
    def __init__(self, judge: Judge, transcripts: Transcripts) -> None:
        super().__init__(judge)
        self._transcripts = transcripts

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        key, is_draw = _key(self.identity, request), _wants_a_draw(request)
        for said in () if is_draw else await self._transcripts.said(key):
            known = None if said.error else read_reply(said.body, request.reply_type)
            if known is not None:
                return known
        try:
            reply = await self.inner.ask(request)
        except tuple(_SAID.values()) as exc:
            await self._keep(key, request, _failed(exc), is_draw=is_draw)
            raise
        said = Said(body=write_reply(reply), usage=as_json(asdict(reply.usage)))
        await self._keep(key, request, said, is_draw=is_draw)
        return reply

    async def _keep(self, key: bytes, request: JudgeRequest[Any], said: Said, *, is_draw: bool) -> None:
        await self._transcripts.keep_said(
            key, said, identity=self.identity, step=request.step, prompt=request.system, is_draw=is_draw
        )


class _Replayed:
    def __init__(self, identity: JudgeIdentity, transcripts: Transcripts) -> None:
        self.identity = identity
        self._transcripts = transcripts
        self._draws: defaultdict[bytes, int] = defaultdict(int)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Repeat what was said.

        Raises:
            JudgeError: what the judge raised then; or it was never asked this.
        """
        key = _key(self.identity, request)
        draw = self._draws[key]
        self._draws[key] += _wants_a_draw(request)
        for said in (await self._transcripts.said(key))[draw : draw + 1]:
            if said.error:
                raise _error(said)
            if reply := read_reply(said.body, request.reply_type, usage=_usage(said)):
                return reply
        raise NotInTranscript(f"nobody asked {self.identity.model} this {request.step}", usage=Usage())

    async def aclose(self) -> None:
        """Hold nothing."""


def _key(identity: JudgeIdentity, request: JudgeRequest[Any]) -> bytes:
    who = [_FORM, identity.provider, identity.model]
    return digest([*asked(request, who), request.user, request.max_output_tokens])


def _wants_a_draw(request: JudgeRequest[Any]) -> bool:
    return request.sampling is not None and (request.sampling.temperature or 0.0) > _WANTS_A_DRAW


def _failed(exc: JudgeError) -> Said:
    return Said(
        body=as_json({"message": str(exc)}), usage=as_json(asdict(exc.usage)), error=type(exc).__name__
    )


def _error(said: Said) -> JudgeError:
    kind = _SAID.get(said.error, JudgeNonsense)
    return kind(json.loads(said.body)["message"], usage=_usage(said))


def _usage(said: Said) -> Usage:
    return Usage(**json.loads(said.usage))
