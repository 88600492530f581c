"""Budgets: every attempt to ask a judge is counted before it is made, or it is not made.

An attempt is reserved with a cost estimate, which is replaced by the actual cost. After a crash in between,
the estimate stays counted. If a judge reports its HTTP requests (`ragtrace.judge.calls`), each one is
counted: an attempt may take several, and failed ones count.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from ragtrace.budget.amounts import Spend
from ragtrace.budget.prices import Price
from ragtrace.errors import JudgeError, JudgeOverBudget, JudgeTimeout
from ragtrace.judge.calls import JudgeCall
from ragtrace.model import Usage

ReservationT = TypeVar("ReservationT")

_MOST_EXCESS: Final = 64.0
"""The largest accepted multiple of an estimate: more than a reasoning model needs. An endpoint's wrong count
must not use up the budget."""


@dataclass(slots=True, kw_only=True)
class CostEstimator:
    """Estimates the cost of one judge's usage."""

    price: Price | None
    """``None`` if it is unknown; then no limit in dollars is allowed."""
    excess: float = 1.0
    """The largest ratio of actual to estimated usage so far; reasoning models use more."""

    def estimate(self, largest: Usage) -> Spend:
        """Return the largest cost of a request."""
        spend = self._spend(largest)
        return Spend(
            calls=spend.calls,
            tokens=math.ceil(spend.tokens * self.excess),
            usd_nano=math.ceil(spend.usd_nano * self.excess),
        )

    def actual(self, usage: Usage, estimate: Spend) -> Spend:
        """Return the actual cost of an attempt; the estimate if the endpoint reports nothing.

        Reported usage is capped at a multiple of the estimate, and never below zero.
        """
        if usage.calls <= 0:
            return Spend()
        if usage.input_tokens <= 0 or usage.output_tokens < 0:
            return Spend(calls=usage.calls, tokens=estimate.tokens, usd_nano=estimate.usd_nano)
        spend = self._spend(_within(usage, estimate))
        self._learn(spend, estimate)
        return spend

    def expected_of(self, call: JudgeCall) -> Spend:
        """Return the largest cost of one HTTP request, from its known body."""
        return self._spend(call.asked.largest)

    def actual_of(self, call: JudgeCall, estimate: Spend, *, is_first: bool) -> Spend:
        """Return the actual cost of one HTTP request; the estimate if it is unknown.

        ``is_first``: the estimate was for the whole attempt, so the estimator learns from it.
        """
        if not call.is_known:
            larger = self.expected_of(call)
            tokens, usd_nano = max(estimate.tokens, larger.tokens), max(estimate.usd_nano, larger.usd_nano)
            return Spend(calls=call.usage.calls, tokens=tokens, usd_nano=usd_nano)
        spend = self._spend(call.usage)
        if is_first:
            self._learn(spend, estimate)
        return spend

    def _learn(self, spend: Spend, estimate: Spend) -> None:
        if estimate.tokens:
            excess = self.excess * spend.tokens / estimate.tokens
            self.excess = min(_MOST_EXCESS, max(self.excess, excess))

    def _spend(self, usage: Usage) -> Spend:
        usd = self.price.cost_usd(usage) if self.price else 0.0
        return Spend(
            calls=usage.calls,
            tokens=usage.input_tokens + usage.output_tokens,
            usd_nano=math.ceil(usd * 1e9),
        )


def _within(usage: Usage, estimate: Spend) -> Usage:
    most = int(_MOST_EXCESS * estimate.tokens)
    return Usage(
        calls=usage.calls,
        input_tokens=min(usage.input_tokens, most),
        output_tokens=min(usage.output_tokens, most),
        cached_tokens=max(0, usage.cached_tokens),
    )


@dataclass(slots=True)
class RequestCost:
    """The actual cost of one attempt, summed by HTTP request if the judge reports them."""

    usage: Usage | None = None
    """Cost of the whole attempt, if the judge reports no requests. ``None``: unknown, the estimate stays."""
    doubts: int = 0
    """Requests with an implausible reported usage."""

    @asynccontextmanager
    async def request(self, call: JudgeCall) -> AsyncIterator[None]:
        """Count a request; implements `ragtrace.judge.calls.CallObserver`.

        Raises:
            JudgeOverBudget: the budget has no room for it.
        """
        try:
            yield
        finally:
            self.doubts += bool(call.doubt)


class Spender(Protocol):
    """Counts requests and lets them pass while the budget has room."""

    def spending(
        self, cost_estimator: CostEstimator, largest: Usage
    ) -> AbstractAsyncContextManager[RequestCost]:
        """Count a request before it is made; the yielded cost receives what it actually cost.

        Raises:
            JudgeOverBudget: the budget has no room for it.
        """
        ...


class SpendLedger(Protocol[ReservationT]):
    """Stores what was spent."""

    async def reserve(self, estimate: Spend, *, share: float) -> ReservationT:
        """Reserve the estimate of a request within a share of the limits.

        Raises:
            JudgeOverBudget: a limit forbids it.
            JudgeError: it cannot be counted, so it must not be sent.
        """
        ...

    async def settle(self, reservation: ReservationT, actual: Spend) -> None:
        """Replace a reserved estimate by the actual cost."""
        ...


@dataclass(slots=True, kw_only=True)
class ReservingSpender(Generic[ReservationT]):
    """A `Spender` over a `SpendLedger`: lets requests pass if their estimates fit."""

    spend_ledger: SpendLedger[ReservationT]
    _announced: int = 0
    """Attempts without a request so far."""
    _away: int = 0
    """Requests under way. They end independently of others."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced whenever a reservation is settled."""

    @asynccontextmanager
    async def spending(
        self, cost_estimator: CostEstimator, largest: Usage, *, share: float = 1.0
    ) -> AsyncIterator[RequestCost]:
        """Count an attempt before it is made; the yielded cost receives what it actually cost.

        If the cost stays unknown (time-out, cancellation), the estimate stays counted.

        Raises:
            JudgeOverBudget: it would exceed a limit, even if everything under way cost nothing.
            JudgeError: it cannot be counted, so it is not sent.
        """
        estimate = cost_estimator.estimate(largest)
        first = await self._first(estimate, share)
        request_cost = _Itemized(
            spender=self, cost_estimator=cost_estimator, share=share, first=first, estimate=estimate
        )
        self._announced += 1
        try:
            yield request_cost
        except JudgeTimeout:
            raise
        except JudgeError as failed:
            request_cost.usage = failed.usage
            raise
        finally:
            await request_cost.close()

    async def settle(self, reservation: ReservationT, actual: Spend | None, *, was_away: bool) -> None:
        """Replace an estimate by the actual cost, if it is known, and wake the waiting attempts."""
        try:
            if actual is not None:
                await self.spend_ledger.settle(reservation, actual)
        finally:
            self._away -= was_away
            self._announced -= not was_away
            settled, self._settled = self._settled, asyncio.Event()
            settled.set()

    def begin(self) -> None:
        """Record that an announced attempt makes its first request."""
        self._announced -= 1
        self._away += 1

    async def _first(self, estimate: Spend, share: float) -> ReservationT:
        while True:
            settled = self._settled
            try:
                return await self.spend_ledger.reserve(estimate, share=share)
            except JudgeOverBudget:
                if not self._announced and not self._away and not settled.is_set():
                    raise
            # Requests under way are counted by estimate: they may leave room, or have left some since.
            # The ledger answers in the order of its decisions, so admitted attempts are already under way.
            await settled.wait()

    async def further(self, estimate: Spend, share: float) -> ReservationT:
        """Count one more request of an attempt that has begun.

        It waits only for requests, which always end: an attempt that has not begun may be waiting for this
        one.

        Raises:
            JudgeOverBudget: the budget has no room for it.
        """
        while True:
            settled = self._settled
            try:
                reservation = await self.spend_ledger.reserve(estimate, share=share)
            except JudgeOverBudget:
                if not self._away and not settled.is_set():
                    if not self._announced:
                        raise
                    # the limit is not reached yet: a retry finds room, or finds it reached
                    what = "the requests under way leave no room for another one now"
                    raise JudgeOverBudget(what) from None
            else:
                self._away += 1
                return reservation
            await settled.wait()


@dataclass(slots=True, kw_only=True)
class _Itemized(RequestCost, Generic[ReservationT]):
    """The cost of an attempt at a `ReservingSpender`."""

    spender: ReservingSpender[ReservationT]
    cost_estimator: CostEstimator
    share: float
    first: ReservationT
    """For its first request, or for the whole attempt."""
    estimate: Spend
    is_begun: bool = False

    @asynccontextmanager
    async def request(self, call: JudgeCall) -> AsyncIterator[None]:
        is_first, self.is_begun = not self.is_begun, True
        if is_first:
            self.spender.begin()
            reservation, estimate = self.first, self.estimate
        else:
            estimate = self.cost_estimator.expected_of(call)
            reservation = await self.spender.further(estimate, self.share)
        try:
            yield
        finally:
            self.doubts += bool(call.doubt)
            actual = self.cost_estimator.actual_of(call, estimate, is_first=is_first)
            await self.spender.settle(reservation, actual, was_away=True)

    async def close(self) -> None:
        """Settle an attempt whose judge reported no requests."""
        if not self.is_begun:
            actual = None if self.usage is None else self.cost_estimator.actual(self.usage, self.estimate)
            await self.spender.settle(self.first, actual, was_away=False)
