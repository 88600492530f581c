"""The adaptive limiter: sends fewer concurrent requests to an overloaded endpoint, more to a healthy one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeTimeout, JudgeUnavailable
from ragtrace.judge.layers import JudgeLayer
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)


def adaptively_limited(judge: Judge, most: int) -> Judge:
    """Limit concurrent requests by what the judge can take, with ``most`` as the upper bound."""
    return _AdaptivelyLimited(judge, AdaptiveLimiter(most))


def limiter_of(judge: Judge) -> AdaptiveLimiter | None:
    """Return the adaptive limiter among a judge's layers, if there is one."""
    while isinstance(judge, JudgeLayer):
        if isinstance(judge, _AdaptivelyLimited):
            return judge.limiter
        judge = judge.inner
    return None


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
        await self._drop_free_slots()
        await self._slots.acquire()
        cuts_before = self._cuts
        try:
            yield
        except (JudgeUnavailable, JudgeTimeout):
            if cuts_before == self._cuts:  # else the request began before the last cut
                self._cut()
            raise
        else:
            self._grow()
        finally:
            self._free()

    def _cut(self) -> None:
        lower = max(1, self.limit // 2)
        self._surplus += self.limit - lower
        self.limit = lower
        self._cuts += 1
        self._clean = 0

    def _grow(self) -> None:
        self._clean += 1
        if self._clean >= self.limit < self.most:
            self.limit += 1
            self._clean = 0
            self._free()

    def _free(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._slots.release()

    async def _drop_free_slots(self) -> None:
        while self._surplus and not self._slots.locked():
            await self._slots.acquire()
            self._surplus -= 1


class _AdaptivelyLimited(JudgeLayer):
    def __init__(self, judge: Judge, limiter: AdaptiveLimiter) -> None:
        super().__init__(judge)
        self.limiter = limiter

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        async with self.limiter.turn():
            return await self.inner.ask(request)
