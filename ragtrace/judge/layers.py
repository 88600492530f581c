"""Layers around a judge: a layer wraps a judge, is a judge, and adds one thing.

`open_judge` puts on, from the outside: cache, usage, limit, retries, the caller's own layer, adaptive limit,
time-out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeTimeout, JudgeUnavailable
from ragtrace.http import Backoff, Sleep
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Embeddings, Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)
AnswerT = TypeVar("AnswerT", bound="JudgeReply[Any] | Embeddings")
LayerT = TypeVar("LayerT", bound="JudgeLayer")


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


def layer_of(judge: Judge, kind: type[LayerT]) -> LayerT | None:
    """Return the outermost layer of a kind, if there is one."""
    while isinstance(judge, JudgeLayer):
        if isinstance(judge, kind):
            return judge
        judge = judge.inner
    return None


def unwrapped(judge: Judge) -> Judge:
    """Return the innermost judge, without layers."""
    while isinstance(judge, JudgeLayer):
        judge = judge.inner
    return judge


def folding_contradicted(judge: Judge) -> Judge:
    """Let the judge's verdict *contradicted* count as *unsupported*."""
    return judge if judge.identity.folds_contradicted else _Folding(judge)


class _Folding(JudgeLayer):
    """The step that asks for verdicts folds them: it has the evidence."""

    @property
    def identity(self) -> JudgeIdentity:
        return replace(self.inner.identity, contradicts=False, folds_contradicted=True)


def spent_by(judge: Judge) -> Usage:
    """Return a judge's usage so far, over all callers; empty if no layer counts it."""
    layer = layer_of(judge, Metered)
    return layer.spent if layer else Usage()


class Metered(JudgeLayer):
    """Sums up the judge's usage, failed requests included; `spent_by` returns it."""

    spent = Usage()

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            reply = await self.inner.ask(request)
        except JudgeError as failed:
            self.spent += failed.usage
            raise
        self.spent += reply.usage
        return reply


class Limited(JudgeLayer):
    """Limits concurrent requests; the others wait in order."""

    def __init__(self, judge: Judge, max_concurrency: int) -> None:
        super().__init__(judge)
        self._slots = asyncio.Semaphore(max_concurrency)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        async with self._slots:
            return await self.inner.ask(request)


class Retrying(JudgeLayer):
    """Retries only after ``JudgeUnavailable`` (429, 5xx, no connection).

    A time-out is not retried: a slow server would need as long again.
    """

    def __init__(self, judge: Judge, backoff: Backoff, *, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(judge)
        self._backoff = backoff
        self._sleep = sleep

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        return await retried(lambda: self.inner.ask(request), self._backoff, self._sleep)


async def retried(
    attempt: Callable[[], Awaitable[AnswerT]], backoff: Backoff, sleep: Sleep = asyncio.sleep
) -> AnswerT:
    """Retry until there is an answer. Its usage, or the error's, covers all attempts.

    Raises:
        JudgeError: the last attempt failed, or a retry cannot help.
    """
    spent = Usage()
    for retry in range(backoff.max_retries + 1):
        try:
            answer = await attempt()
        except JudgeError as failed:
            spent = failed.usage = spent + failed.usage
            if not isinstance(failed, JudgeUnavailable):
                raise
            wait_s = backoff.wait_s(retry, failed.retry_after_s, random.random())
            if wait_s is None:
                raise
            await sleep(wait_s)
        else:
            return replace(answer, usage=spent + answer.usage) if retry else answer
    raise AssertionError("the last retry gives up")


def limiter_of(judge: Judge) -> AdaptiveLimiter | None:
    """Return the adaptive limiter among a judge's layers, if there is one."""
    layer = layer_of(judge, AdaptivelyLimited)
    return layer.limiter if layer else None


class AdaptivelyLimited(JudgeLayer):
    """Limits concurrent requests by what the judge can take, with ``most`` as the upper bound."""

    def __init__(self, judge: Judge, most: int) -> None:
        super().__init__(judge)
        self.limiter = AdaptiveLimiter(most)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        async with self.limiter.turn():
            return await self.inner.ask(request)


class AdaptiveLimiter:
    """Halves the number of concurrent requests after an overload, adds one after a clean round.

    A time-out or an unavailable endpoint (429, 5xx, no connection) is an overload.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        """The current limit of concurrent requests."""
        self._slots = asyncio.Semaphore(most)
        self._surplus = 0
        """Slots to remove as soon as they are free."""
        self._cuts = 0
        self._clean = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot, then adapt the limit to the request's outcome."""
        while self._surplus and not self._slots.locked():
            await self._slots.acquire()
            self._surplus -= 1
        await self._slots.acquire()
        cuts_before = self._cuts
        try:
            yield
        except (JudgeUnavailable, JudgeTimeout):
            if cuts_before == self._cuts:  # else the request began before the last cut
                lower = max(1, self.limit // 2)
                self._surplus += self.limit - lower
                self.limit = lower
                self._cuts += 1
                self._clean = 0
            raise
        else:
            self._clean += 1
            if self._clean >= self.limit < self.most:
                self.limit += 1
                self._clean = 0
                self._free()
        finally:
            self._free()

    def _free(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._slots.release()


class Timed(JudgeLayer):
    """Raises ``JudgeTimeout`` after ``timeout_s`` seconds of a request."""

    def __init__(self, judge: Judge, timeout_s: float) -> None:
        super().__init__(judge)
        self._timeout_s = timeout_s

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self.inner.ask(request)
        except TimeoutError as exc:
            raise JudgeTimeout(f"the judge gave no answer within {self._timeout_s:g} s") from exc
