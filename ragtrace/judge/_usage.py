"""The usage layer: sums up a judge's usage."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)


def metered(judge: Judge) -> Judge:
    """Sum up the judge's usage, failed requests included; `spent_by` returns it."""
    return _Metered(judge)


def spent_by(judge: Judge) -> Usage:
    """Return a judge's usage so far, over all callers; empty if no layer counts it."""
    while isinstance(judge, JudgeLayer):
        if isinstance(judge, _Metered):
            return judge.spent
        judge = judge.inner
    return Usage()


class _Metered(JudgeLayer):
    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.spent = Usage()

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            reply = await self.inner.ask(request)
        except JudgeError as failed:
            self.spent += failed.usage
            raise
        self.spent += reply.usage
        return reply
