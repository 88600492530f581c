"""Layers around a judge: a layer wraps a judge, is a judge, and adds one thing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeTimeout
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)


def limited(judge: Judge, max_concurrency: int) -> Judge:
    """Limit concurrent requests; the others wait in order."""
    return _Limited(judge, max_concurrency)


def timed(judge: Judge, timeout_s: float) -> Judge:
    """Raise ``JudgeTimeout`` after ``timeout_s`` seconds of a request."""
    return _Timed(judge, timeout_s)


def folding_contradicted(judge: Judge) -> Judge:
    """Let the judge's verdict *contradicted* count as *unsupported*."""
    return judge if judge.identity.folds_contradicted else _Folding(judge)


def unwrapped(judge: Judge) -> Judge:
    """Return the innermost judge, without layers."""
    while isinstance(judge, JudgeLayer):
        judge = judge.inner
    return judge


class JudgeLayer:
    """Delegates everything; a layer overrides what it changes."""

    def __init__(self, judge: Judge) -> None:
        self.inner = judge

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self.inner.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request."""
        return await self.inner.ask(request)

    async def aclose(self) -> None:
        """Release the resources of the judge and the layer."""
        await self.inner.aclose()


class _Folding(JudgeLayer):
    """The step that asks for verdicts folds them: it has the evidence."""

    @property
    def identity(self) -> JudgeIdentity:
        return replace(self.inner.identity, contradicts=False, folds_contradicted=True)


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
