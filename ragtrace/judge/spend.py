"""What asking costs: every attempt to ask a judge is counted before it is made, or is not made.

An attempt is counted by an estimate, and corrected when it is known what it took. So a crash between the two
leaves the estimate counted, never nothing. Of judges that tell of each request (`ragtrace.judge.calls`), each
is counted: an attempt may take several, and one that failed is one, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeOverBudget, JudgeTimeout
from ragtrace.judge.calls import JudgeCall, watched_by
from ragtrace.judge.layers import JudgeLayer
from ragtrace.judge.prices import Price
from ragtrace.judge.replies import reply_schema
from ragtrace.model import Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)
ReservationT = TypeVar("ReservationT")

_NANO: Final = 1_000_000_000
_BYTES_A_TOKEN: Final = 2
_MOST_EXCESS: Final = 64.0
"""More than a model that thinks needs: an endpoint that counts wrongly must not close the purse."""


def budgeted(judge: Judge, spenders: Sequence[Spender], price: Price | None) -> Judge:
    """Let a request reach the judge only where every spender has counted it.

    ``spenders`` is looked at for each request: it may be filled later. A judge that computes costs nothing
    and comes back as it is.
    """
    return judge if judge.identity.computes else _Budgeted(judge, spenders, CostEstimator(price=price))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount, in whole numbers: sums stay exact."""

    calls: int = 0
    tokens: int = 0
    """Of prompts and replies together."""
    usd_nano: int = 0
    """Billionths of a US dollar: less than the cheapest token costs."""

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            usd_nano=self.usd_nano + other.usd_nano,
        )

    def __sub__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls - other.calls,
            tokens=self.tokens - other.tokens,
            usd_nano=self.usd_nano - other.usd_nano,
        )

    @property
    def usd(self) -> float:
        """US dollars."""
        return self.usd_nano / _NANO


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What may be spent; ``None`` is without limit."""

    calls: int | None = None
    tokens: int | None = None
    usd_nano: int | None = None

    def exceeded_by(self, spend: Spend, *, share: float = 1.0) -> str | None:
        """Return which of the limits an amount exceeds (``calls``, ``tokens`` or ``usd``), if any."""
        for name, most, amount in self.pairs(spend):
            if amount > most * share:
                return name
        return None

    def used(self, spend: Spend) -> float:
        """Return the largest share of a limit that an amount takes, 0 if nothing is limited."""
        shares = (amount / most if most else 1.0 for _, most, amount in self.pairs(spend))
        return max(shares, default=0.0)

    def pairs(self, spend: Spend) -> list[tuple[str, int, int]]:
        """Return the limits that are set: their names, what may be spent, and what of an amount counts."""
        every = (
            ("calls", self.calls, spend.calls),
            ("tokens", self.tokens, spend.tokens),
            ("usd", self.usd_nano, spend.usd_nano),
        )
        return [(name, most, amount) for name, most, amount in every if most is not None]


def largest_usage(request: JudgeRequest[Any]) -> Usage:
    """Return what a request takes at most, if the judge neither thinks nor has to correct itself."""
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


@dataclass(slots=True, kw_only=True)
class CostEstimator:
    """What usage of one judge is worth."""

    price: Price | None
    """``None`` where it is not known: then nothing may be limited in money."""
    excess: float = 1.0
    """How many times as much as estimated a request took at most, so far: judges that think take more."""

    def estimate(self, largest: Usage) -> Spend:
        """Return what a request costs at most."""
        spend = self._spend(largest)
        return Spend(
            calls=spend.calls,
            tokens=math.ceil(spend.tokens * self.excess),
            usd_nano=math.ceil(spend.usd_nano * self.excess),
        )

    def actual(self, usage: Usage, estimate: Spend) -> Spend:
        """Return what an attempt did cost: as estimated, where the endpoint does not say.

        What it says is believed up to many times the estimate, and never to be less than nothing.
        """
        if usage.calls <= 0:
            return Spend()
        if usage.input_tokens <= 0 or usage.output_tokens < 0:
            return Spend(calls=usage.calls, tokens=estimate.tokens, usd_nano=estimate.usd_nano)
        spend = self._spend(_within(usage, estimate))
        self._learn(spend, estimate)
        return spend

    def expected_of(self, call: JudgeCall) -> Spend:
        """Return what one request costs at most, whose document is known: no guess about it is needed."""
        return self._spend(call.asked.largest)

    def actual_of(self, call: JudgeCall, estimate: Spend, *, is_first: bool) -> Spend:
        """Return what one request did cost: as estimated, where nobody knows.

        ``is_first`` says that the estimate was of an attempt as a whole, and is learned from.
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
    """What one attempt cost, as it becomes known: request by request, from judges that tell of each."""

    usage: Usage | None = None
    """Of the whole attempt, from judges that do not. ``None``: nobody knows, and the estimate stays."""
    doubts: int = 0
    """Requests of which the endpoint says what cannot be."""

    @asynccontextmanager
    async def request(self, call: JudgeCall) -> AsyncIterator[None]:
        """Count a request: a `ragtrace.judge.calls.Watcher`.

        Raises:
            JudgeOverBudget: there is no room for it.
        """
        try:
            yield
        finally:
            self.doubts += bool(call.doubt)


class Spender(Protocol):
    """Counts requests, and lets them pass as long as there is room."""

    def spending(
        self, cost_estimator: CostEstimator, largest: Usage
    ) -> AbstractAsyncContextManager[RequestCost]:
        """Count a request before it is made; its bill says afterwards what it did cost.

        Raises:
            JudgeOverBudget: there is no room for it.
        """
        ...


class SpendLedger(Protocol[ReservationT]):
    """Where it is kept what was spent."""

    async def reserve(self, estimate: Spend, *, share: float) -> ReservationT:
        """Count a request that is about to be made, within a share of the limits.

        Raises:
            JudgeOverBudget: a limit forbids it.
            JudgeError: it cannot be counted, so it must not be made.
        """
        ...

    async def settle(self, reservation: ReservationT, actual: Spend) -> None:
        """Count what was spent instead of the estimate."""
        ...


@dataclass(slots=True, kw_only=True)
class ReservingSpender(Generic[ReservationT]):
    """Lets requests pass as their estimates fit: a `Spender` over a `SpendLedger`."""

    spend_ledger: SpendLedger[ReservationT]
    _announced: int = 0
    """Attempts of which no request was made yet."""
    _away: int = 0
    """Requests that are made, and have not ended: they will, whatever becomes of others."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced at each settlement."""

    @asynccontextmanager
    async def spending(
        self, cost_estimator: CostEstimator, largest: Usage, *, share: float = 1.0
    ) -> AsyncIterator[RequestCost]:
        """Count an attempt before it is made; its bill says afterwards what it did cost.

        What nobody knows (it timed out, or was interrupted) stays counted as it was estimated.

        Raises:
            JudgeOverBudget: a limit would be exceeded, even if all that is under way cost nothing.
            JudgeError: it cannot be counted, so it is not made.
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
        """Count what was spent instead of an estimate, if that is known; those who wait look again."""
        try:
            if actual is not None:
                await self.spend_ledger.settle(reservation, actual)
        finally:
            self._away -= was_away
            self._announced -= not was_away
            settled, self._settled = self._settled, asyncio.Event()
            settled.set()

    def begin(self) -> None:
        """Note that an attempt which was announced makes its first request."""
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
            # What is under way is counted by its estimate and may leave room, or left some since we asked.
            # Whoever was let through is under way by now: the book answers in the order in which it decides.
            await settled.wait()

    async def further(self, estimate: Spend, share: float) -> ReservationT:
        """Count one more request of an attempt that has begun.

        It waits for requests alone, which end by themselves: an attempt that has not begun may wait for us.

        Raises:
            JudgeOverBudget: there is no room for it.
        """
        while True:
            settled = self._settled
            try:
                reservation = await self.spend_ledger.reserve(estimate, share=share)
            except JudgeOverBudget:
                if not self._away and not settled.is_set():
                    if not self._announced:
                        raise
                    # the limit is not reached: whoever comes back finds room, or that it is
                    what = "what others may take leaves no room for another request now"
                    raise JudgeOverBudget(what) from None
            else:
                self._away += 1
                return reservation
            await settled.wait()


@dataclass(slots=True, kw_only=True)
class _Itemized(RequestCost, Generic[ReservationT]):
    """The bill of an attempt at a turnstile."""

    spender: ReservingSpender[ReservationT]
    cost_estimator: CostEstimator
    share: float
    first: ReservationT
    """For its first request, or for the whole of it."""
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
        """Settle an attempt whose requests nobody told of."""
        if not self.is_begun:
            actual = None if self.usage is None else self.cost_estimator.actual(self.usage, self.estimate)
            await self.spender.settle(self.first, actual, was_away=False)


class _Budgeted(JudgeLayer):
    def __init__(self, judge: Judge, spenders: Sequence[Spender], cost_estimator: CostEstimator) -> None:
        super().__init__(judge)
        self._spenders = spenders
        self._cost_estimator = cost_estimator

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        largest = largest_usage(request)
        async with AsyncExitStack() as counted:
            request_costs = [
                await counted.enter_async_context(each.spending(self._cost_estimator, largest))
                for each in self._spenders
            ]
            with watched_by(*request_costs):
                reply = await self.inner.ask(request)
            for request_cost in request_costs:
                request_cost.usage = reply.usage
            return reply
