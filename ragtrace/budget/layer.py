"""The judge layer that reserves what a request may cost before it reaches the judge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.budget.prices import Price
from ragtrace.budget.reserve import CostEstimator, Spender
from ragtrace.judge.calls import watched_by
from ragtrace.judge.layers import JudgeLayer
from ragtrace.judge.replies import reply_schema
from ragtrace.model import Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_BYTES_A_TOKEN: Final = 2


def budgeted(judge: Judge, spenders: Sequence[Spender], price: Price | None) -> Judge:
    """Let a request reach the judge only if every spender has counted it.

    ``spenders`` is read at each request, so it may be filled later. Local judges that compute cost nothing
    and are returned unchanged.
    """
    return judge if judge.identity.computes else _Budgeted(judge, spenders, CostEstimator(price=price))


def largest_usage(request: JudgeRequest[Any]) -> Usage:
    """Return the largest usage of a request, without reasoning and corrections."""
    form: type[BaseModel] = request.reply_type
    size = len(request.system.encode("utf-8", "replace")) + len(request.user.encode("utf-8", "replace"))
    return Usage(
        calls=1,
        input_tokens=(size + _schema_bytes(form)) // _BYTES_A_TOKEN + 1,
        output_tokens=request.max_output_tokens,
    )


@lru_cache(maxsize=256)
def _schema_bytes(reply_type: type[BaseModel]) -> int:
    return len(str(reply_schema(reply_type)))


class _Budgeted(JudgeLayer):
    def __init__(self, judge: Judge, spenders: Sequence[Spender], cost_estimator: CostEstimator) -> None:
        super().__init__(judge)
        self._spenders = spenders
        self._cost_estimator = cost_estimator

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        largest = largest_usage(request)
        async with AsyncExitStack() as counted:
            request_costs = [
                await counted.enter_async_context(spender.spending(self._cost_estimator, largest))
                for spender in self._spenders
            ]
            with watched_by(*request_costs):
                reply = await self.inner.ask(request)
            for request_cost in request_costs:
                request_cost.usage = reply.usage
            return reply
