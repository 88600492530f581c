"""Layers around a judge: each takes a judge and is one, and adds one thing."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeTimeout
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)


def limited(judge: Judge, max_concurrency: int) -> Judge:
    """Let at most so many requests reach the judge at once; the others wait in order."""
    return _Limited(judge, max_concurrency)


def timed(judge: Judge, timeout_s: float) -> Judge:
    """Give up on a request after so many seconds, with ``JudgeTimeout``."""
    return _Timed(judge, timeout_s)


def unwrapped(judge: Judge) -> Judge:
    """Return the judge itself, from under all layers."""
    while isinstance(judge, JudgeLayer):
        judge = judge.inner
    return judge


class JudgeLayer:
    """Passes everything on: a layer overrides what it changes."""

    def __init__(self, judge: Judge) -> None:
        self.inner = judge

    @property
    def identity(self) -> JudgeIdentity:
        """Who judges."""
        return self.inner.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request."""
        return await self.inner.ask(request)

    async def aclose(self) -> None:
        """Release what the judge and the layer hold."""
        await self.inner.aclose()


class _Limited(JudgeLayer):
    def __init__(self, judge: Judge, max_concurrency: int) -> None:
        super().__init__(judge)
        self._slots = asyncio.Semaphore(max_concurrency)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        async with self._slots:
            return await self.inner.ask(request)


class _Timed(JudgeLayer):
    def __init__(self, judge: Judge, timeout_s: float) -> None:
        super().__init__(judge)
        self._timeout_s = timeout_s

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self.inner.ask(request)
        except TimeoutError as exc:
            raise JudgeTimeout(f"the judge gave no answer within {self._timeout_s:g} s") from exc
