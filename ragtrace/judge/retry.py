"""Retries while an endpoint is unavailable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeUnavailable
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import Usage
from ragtrace.ports import Embeddings, Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)
AnswerT = TypeVar("AnswerT", bound="JudgeReply[Any] | Embeddings")
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The retry policy: how often to retry, and how long to wait."""

    max_retries: int = 2
    first_wait_s: float = 0.5
    """Doubles with every retry."""
    longest_wait_s: float = 8.0
    max_retry_after_s: float = 120.0
    """If an endpoint asks for a longer pause, the retries end at once: the caller can try again later."""

    def wait_s(self, retry: int, told_s: float | None, draw: float) -> float | None:
        """Return the seconds to wait before a retry, or ``None`` to give up.

        Args:
            retry: Number of earlier retries.
            told_s: The endpoint's ``Retry-After``, a lower bound of the wait.
            draw: A random number in [0, 1), so that clients that failed together do not retry together.
        """
        if retry >= self.max_retries or (told_s or 0.0) > self.max_retry_after_s:
            return None
        if told_s is not None:
            return told_s * (1 + draw / 4)
        return min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(retry, 30)) * (1 + draw) / 2


def retrying(judge: Judge, backoff: Backoff | None = None, *, sleep: Sleep = asyncio.sleep) -> Judge:
    """Retry only after ``JudgeUnavailable`` (429, 5xx, no connection).

    A time-out is not retried: a slow server would need as long again.
    """
    return _Retrying(judge, backoff or Backoff(), sleep)


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
            wait_s = _wait_s(failed, retry, backoff)
            if wait_s is None:
                raise
            await sleep(wait_s)
        else:
            return replace(answer, usage=spent + answer.usage) if retry else answer
    raise AssertionError("the last retry gives up")


def _wait_s(failed: JudgeError, retry: int, backoff: Backoff) -> float | None:
    if not isinstance(failed, JudgeUnavailable):
        return None
    return backoff.wait_s(retry, failed.retry_after_s, random.random())


class _Retrying(JudgeLayer):
    def __init__(self, judge: Judge, backoff: Backoff, sleep: Sleep) -> None:
        super().__init__(judge)
        self._backoff = backoff
        self._sleep = sleep

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        return await retried(lambda: self.inner.ask(request), self._backoff, self._sleep)
