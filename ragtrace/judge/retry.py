"""Retries while an endpoint is unavailable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeUnavailable
from ragtrace.http.retry import Backoff, Sleep
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import Usage
from ragtrace.ports import Embeddings, Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)
AnswerT = TypeVar("AnswerT", bound="JudgeReply[Any] | Embeddings")


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
