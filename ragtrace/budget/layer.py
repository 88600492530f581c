"""The judge layer that reserves what a request may cost before it reaches the judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.budget.prices import Price
from ragtrace.budget.reserve import CostEstimator, RequestCost, Spender
from ragtrace.judge.calls import watched_by
from ragtrace.judge.layers import JudgeLayer
from ragtrace.judge.replies import reply_schema
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Embedder, Embeddings, Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_BYTES_A_TOKEN: Final = 2


def budgeted(judge: Judge, spenders: Sequence[Spender], price: Price | None) -> Judge:
    """Let a request reach the judge only if every spender has counted it.

    ``spenders`` is read at each request, so it may be filled later.
    """
    return _BudgetedJudge(judge, spenders, CostEstimator(price=price))


def budgeted_embedder(embedder: Embedder, spenders: Sequence[Spender], price: Price | None) -> Embedder:
    """Let a request reach the embedder only if every spender has counted it."""
    return _BudgetedEmbedder(embedder, spenders, CostEstimator(price=price))


def largest_usage(request: JudgeRequest[Any]) -> Usage:
    """Return the largest usage of a request, without reasoning and corrections."""
    form: type[BaseModel] = request.reply_type
    size = _size(request.system) + _size(request.user) + _schema_bytes(form)
    return Usage(
        calls=1,
        input_tokens=size // _BYTES_A_TOKEN + 1,
        output_tokens=request.max_output_tokens,
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


@lru_cache(maxsize=256)
def _schema_bytes(reply_type: type[BaseModel]) -> int:
    return len(str(reply_schema(reply_type)))


@asynccontextmanager
async def _counted(
    spenders: Sequence[Spender], cost_estimator: CostEstimator, largest: Usage
) -> AsyncIterator[list[RequestCost]]:
    """Count a request at every spender, and let them watch its HTTP requests."""
    async with AsyncExitStack() as counted:
        request_costs = [
            await counted.enter_async_context(spender.spending(cost_estimator, largest))
            for spender in spenders
        ]
        with watched_by(*(cost.request for cost in request_costs)):
            yield request_costs


class _BudgetedJudge(JudgeLayer):
    def __init__(self, judge: Judge, spenders: Sequence[Spender], cost_estimator: CostEstimator) -> None:
        super().__init__(judge)
        self._spenders = spenders
        self._cost_estimator = cost_estimator

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        async with _counted(self._spenders, self._cost_estimator, largest_usage(request)) as request_costs:
            reply = await self.inner.ask(request)
            for request_cost in request_costs:
                request_cost.usage = reply.usage
            return reply


class _BudgetedEmbedder:
    def __init__(
        self, embedder: Embedder, spenders: Sequence[Spender], cost_estimator: CostEstimator
    ) -> None:
        self.inner = embedder
        self._spenders = spenders
        self._cost_estimator = cost_estimator

    @property
    def identity(self) -> JudgeIdentity:
        return self.inner.identity

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        largest = Usage(calls=1, input_tokens=sum(_size(text) for text in texts))
        async with _counted(self._spenders, self._cost_estimator, largest) as request_costs:
            embeddings = await self.inner.embed(texts)
            for request_cost in request_costs:
                request_cost.usage = embeddings.usage
            return embeddings

    async def aclose(self) -> None:
        await self.inner.aclose()
