"""Two judges for transcripts: one records another judge's replies, one replays them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeError, JudgeNonsense, JudgeUnable, NotInTranscript
from ragtrace.judge.cache import as_json, asked, digest, read_reply, write_reply
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.transcripts.file import TranscriptReply, Transcripts

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_FORM: Final = 1
"""Part of every key: changes with the format of the entries."""
_SAID: Final = {kind.__name__: kind for kind in (JudgeNonsense, JudgeCutOff, JudgeUnable)}
"""Failures that are recorded, since the next requests depend on them. Other failures are not."""


def recorded(judge: Judge, transcripts: Transcripts) -> Judge:
    """Record the judge's reply to each request."""
    return _Recorded(judge, transcripts)


def replayed(identity: JudgeIdentity, transcripts: Transcripts, *, session: str) -> Judge:
    """Return a judge that replays this judge's replies of a session, with their original usage.

    Repeated requests get their replies in order. The judge itself is never asked: a request without a
    recorded reply raises `NotInTranscript`.
    """
    return _Replayed(identity, transcripts, session)


class _Recorded(JudgeLayer):
    def __init__(self, judge: Judge, transcripts: Transcripts) -> None:
        super().__init__(judge)
        self._transcripts = transcripts

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            reply = await self.inner.ask(request)
        except tuple(_SAID.values()) as exc:
            await self._keep(request, _failed(exc))
            raise
        await self._keep(
            request, TranscriptReply(body=write_reply(reply), usage=as_json(asdict(reply.usage)))
        )
        return reply

    async def _keep(self, request: JudgeRequest[Any], said: TranscriptReply) -> None:
        await self._transcripts.keep_said(
            _key(self.identity, request),
            said,
            identity=self.identity,
            step=request.step,
            prompt=request.system,
        )


class _Replayed:
    def __init__(self, identity: JudgeIdentity, transcripts: Transcripts, session: str) -> None:
        self.identity = identity
        self._transcripts = transcripts
        self._session = session
        self._times: defaultdict[bytes, int] = defaultdict(int)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Replay the recorded reply.

        Raises:
            JudgeError: the recorded failure, or no reply is recorded.
        """
        key = _key(self.identity, request)
        said = self._transcripts.said(key, session=self._session, time=self._times[key])
        self._times[key] += 1
        if said and said.error:
            raise _error(said)
        reply = read_reply(said.body, request.reply_type, usage=_usage(said)) if said else None
        if reply is None:
            message = f"no reply of {self.identity.model} to this {request.step} is recorded"
            raise NotInTranscript(message, usage=Usage())
        return reply

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def _key(identity: JudgeIdentity, request: JudgeRequest[Any]) -> bytes:
    who = [_FORM, *identity.named]
    return digest([*asked(request, who), request.user, request.max_output_tokens])


def _failed(exc: JudgeError) -> TranscriptReply:
    return TranscriptReply(
        body=as_json({"message": str(exc)}), usage=as_json(asdict(exc.usage)), error=type(exc).__name__
    )


def _error(said: TranscriptReply) -> JudgeError:
    kind = _SAID.get(said.error, JudgeNonsense)
    return kind(json.loads(said.body)["message"], usage=_usage(said))


def _usage(said: TranscriptReply) -> Usage:
    return Usage(**json.loads(said.usage))
