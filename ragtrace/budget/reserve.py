"""Limits of what may be spent, and the time windows in which they hold: an attempt to ask a judge is counted
before it is made, or it is not made.

An attempt is reserved with a cost estimate, which is replaced by the actual cost. After a crash in between,
the estimate stays counted. If a judge reports its HTTP requests (`ragtrace.judge.layers`), each one is
counted: an attempt may take several, and failed ones count.

The rules are here once; what was spent is stored by a `SpendLedger`: in a collector's store, or in the
progress file of a run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.budget.prices import Price, Prices
from ragtrace.errors import ConfigError, JudgeError, JudgeOverBudget, JudgeTimeout
from ragtrace.judge.layers import JudgeCall, JudgeLayer, watched_by
from ragtrace.judge.replies import reply_schema
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Clock, Embedder, Embeddings, Judge, JudgeReply, JudgeRequest

NANO: Final = 1_000_000_000
"""Amounts of money are in billionths of a US dollar."""
_UNITS: Final = {"calls": "calls", "tokens": "tokens", "usd": "usd_nano"}
"""The units, by the words that messages, metrics and the configuration have for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount in integers, so that sums are exact."""

    calls: int = 0
    tokens: int = 0
    """Tokens of prompts and replies."""
    usd_nano: int = 0
    """Billionths of a US dollar, less than the price of the cheapest token."""

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

    def part(self, unit: str) -> int:
        """Return the amount in one unit: ``calls``, ``tokens`` or ``usd``."""
        part: int = getattr(self, _UNITS[unit])
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limits of a budget in one window; ``None`` is unlimited."""

    calls: int | None = None
    tokens: int | None = None
    usd_nano: int | None = None

    @classmethod
    def of(cls, *, calls: int | None, tokens: int | None, usd: float | None) -> Limit:
        """Make limits, of which money is in US dollars."""
        return cls(calls=calls, tokens=tokens, usd_nano=None if usd is None else round(usd * NANO))

    def part(self, unit: str) -> int | None:
        """Return the limit in one unit: ``calls``, ``tokens`` or ``usd``."""
        part: int | None = getattr(self, _UNITS[unit])
        return part

    def parts(self) -> list[tuple[str, int]]:
        """Return the units that are limited, with their limits."""
        return [(unit, most) for unit in _UNITS if (most := self.part(unit)) is not None]

    def exceeded_by(self, spend: Spend) -> str | None:
        """Return the unit of which an amount exceeds the limit, if any."""
        return next((unit for unit, most in self.parts() if spend.part(unit) > most), None)

    def used(self, spend: Spend) -> float:
        """Return the largest share of a limit that an amount uses, 0 without limits."""
        shares = (spend.part(unit) / most if most else 1.0 for unit, most in self.parts())
        return max(shares, default=0.0)


NEVER_NS: Final = 2**63 - 1
"""The end of a window that does not end."""
_AHEAD: Final = 0.1
"""How far spending may run ahead of the clock before nothing more is sampled, as a share of the limit."""


class Period(StrEnum):
    """How long a window is."""

    MINUTE = "minute"
    DAY = "day"
    MONTH = "month"
    RUN = "run"
    """From the beginning of a run to its end, however often it is interrupted."""

    def window(self, now_ns: int) -> BudgetWindow:
        """Return the window of this length that holds a moment. Windows follow UTC."""
        now = datetime.fromtimestamp(now_ns // NANO, UTC).replace(second=0)
        match self:
            case Period.MINUTE:
                return BudgetWindow(period=self, start_ns=_ns(now), end_ns=_ns(now + timedelta(minutes=1)))
            case Period.DAY:
                start = now.replace(hour=0, minute=0)
                return BudgetWindow(period=self, start_ns=_ns(start), end_ns=_ns(start + timedelta(days=1)))
            case Period.MONTH:
                start = now.replace(day=1, hour=0, minute=0)
                following = (start + timedelta(days=32)).replace(day=1)
                return BudgetWindow(period=self, start_ns=_ns(start), end_ns=_ns(following))
            case Period.RUN:
                return BudgetWindow(period=self, start_ns=0, end_ns=NEVER_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWindow:
    """One minute, day, month or run in Unix nanoseconds; the end is exclusive."""

    period: Period
    start_ns: int
    end_ns: int

    @property
    def ends(self) -> bool:
        """Whether another window follows, so that waiting helps."""
        return self.end_ns < NEVER_NS

    def elapsed(self, now_ns: int) -> float:
        """Return the share of the window that is over, from 0 to 1."""
        return min(1.0, max(0.0, (now_ns - self.start_ns) / (self.end_ns - self.start_ns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceededLimit:
    """A limit that a request would exceed. Its amounts are calls, tokens or billionths of a dollar."""

    limit: str
    """``day_usd``: the period and the unit."""
    until_ns: int
    """When its window ends."""
    spent: int
    most: int
    wanted: int
    """What the request may take."""

    @property
    def is_final(self) -> bool:
        """Whether no window follows in which the request would fit."""
        return self.until_ns >= NEVER_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A name under which spending is counted, and limits by period."""

    name: str
    limits: Mapping[Period, Limit]

    @property
    def limits_money(self) -> bool:
        """Whether a limit is in US dollars, so that all prices must be known."""
        return any(limit.usd_nano is not None for limit in self.limits.values())

    def windows(self, now_ns: int) -> tuple[BudgetWindow, ...]:
        """Return the windows that hold a moment, one for each period with a limit."""
        return tuple(period.window(now_ns) for period in self.limits)

    def exceeded_limit(self, spent: Mapping[BudgetWindow, Spend], estimate: Spend) -> ExceededLimit | None:
        """Return the limit that forbids a request; if there are several, the one that lasts longest.

        A request larger than a whole limit passes if nothing was spent yet in a window that ends, because
        else it would never be made.

        Args:
            spent: What was spent in each of the windows.
            estimate: What the request will cost at most.
        """
        found = [
            ExceededLimit(
                limit=f"{window.period}_{unit}",
                until_ns=window.end_ns,
                spent=before.part(unit),
                most=limit.part(unit) or 0,
                wanted=estimate.part(unit),
            )
            for window, before in spent.items()
            if (before != Spend() or not window.ends)
            and (unit := (limit := self.limits[window.period]).exceeded_by(before + estimate))
        ]
        return max(found, key=lambda exceeded: exceeded.until_ns, default=None)


class LimitUsage(NamedTuple):
    """What is spent and left under one limit: calls, tokens or billionths of a dollar."""

    limit: str
    """``day_usd``"""
    spent: int
    most: int
    resets_ns: int
    """When the next window begins: Unix time in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """What was spent of a budget in the windows of a moment."""

    budget: Budget
    spent: Mapping[BudgetWindow, Spend]
    """It includes requests under way, by their estimates."""

    def left(self) -> tuple[LimitUsage, ...]:
        """Return what is spent and left under each limit, in the order of the periods."""
        return tuple(
            LimitUsage(
                limit=f"{window.period}_{unit}", spent=spent.part(unit), most=most, resets_ns=window.end_ns
            )
            for window, spent in self.spent.items()
            for unit, most in self.budget.limits[window.period].parts()
        )

    def share_to_sample(self, now_ns: int) -> float:
        """Return the share of traffic, from 0 to 1, with which the budget lasts for the window.

        It falls if spending runs ahead of the clock, and is 0 when nothing is left. Only days and months
        count: waiting for the next minute loses nothing, and a run has no clock.
        """
        shares = (
            _share(self.budget.limits[window.period].used(spent), window.elapsed(now_ns))
            for window, spent in self.spent.items()
            if window.period in (Period.DAY, Period.MONTH)
        )
        return min(shares, default=1.0)


def _share(used: float, elapsed: float) -> float:
    on_pace = 1 - (used - elapsed) / _AHEAD
    lasting = (1 - used) / max(1 - elapsed, 1e-9)
    return min(1.0, max(0.0, on_pace)) * min(1.0, max(0.0, lasting))


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * NANO


_MOST_EXCESS: Final = 64.0
"""The largest accepted multiple of an estimate: more than a reasoning model needs. An endpoint's wrong count
must not use up the budget."""


class OverBudget(JudgeOverBudget):
    """A window of the budget has no room for a request to the judge, so the request was not made."""

    def __init__(self, budget: Budget, exceeded: ExceededLimit) -> None:
        none_left = f"the budget `{budget.name}` has nothing left ({exceeded.limit})"
        super().__init__(_amounts(exceeded) if exceeded.is_final else none_left)
        self.exceeded = exceeded


class BudgetUnavailable(JudgeError):
    """The ledger cannot count a request to the judge, so the request was not made."""

    error_type = "store_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """An estimate that is counted already, in the windows of its time."""

    budget: Budget
    windows: tuple[BudgetWindow, ...]
    estimate: Spend


def reservation(now: BudgetStatus, estimate: Spend) -> Reservation | ExceededLimit:
    """Return what must be counted before a request is made, or the limit that forbids it."""
    exceeded = now.budget.exceeded_limit(now.spent, estimate)
    return exceeded or Reservation(budget=now.budget, windows=tuple(now.spent), estimate=estimate)


class SpendLedger(Protocol):
    """Stores what was spent, durably: each method is one transaction."""

    async def reserve(self, budget: Budget, estimate: Spend, *, now_ns: int) -> Reservation | ExceededLimit:
        """Count a request that is about to be made, or return the limit that forbids it.

        Raises:
            BudgetUnavailable: it cannot be counted, so it must not be made.
        """
        ...

    async def settle(self, reserved: Reservation, actual: Spend) -> None:
        """Count what was spent instead of the estimate, which stays counted if that fails."""
        ...

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        """Return what was spent in the current windows."""
        ...


def require_price(budget: Budget, who: JudgeIdentity, prices: Prices, *, setting: str, remedy: str) -> None:
    """Make sure that what a judge costs is known if the budget limits money.

    Raises:
        ConfigError: it is not: the message names the setting that limits it, and the remedy.
    """
    if budget.limits_money and not who.computes and prices.price_of(who) is None:
        raise ConfigError(
            f"{setting} limits US dollars, and there is no price for {who.provider}:{who.model}: {remedy}"
        )


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
            usd_nano=math.ceil(usd * NANO),
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
    answered_by: set[tuple[str, str]] = field(default_factory=set)
    """The models and fingerprints that the replies name."""

    def note(self, call: JudgeCall) -> None:
        """Keep what a request that has ended tells beside its cost."""
        self.doubts += bool(call.doubt)
        if call.answered_by is not None:
            self.answered_by.add(call.answered_by)

    @asynccontextmanager
    async def request(self, call: JudgeCall) -> AsyncIterator[None]:
        """Count a request; implements `ragtrace.judge.layers.CallObserver`.

        Raises:
            JudgeOverBudget: the budget has no room for it.
        """
        try:
            yield
        finally:
            self.note(call)


Spending: TypeAlias = Callable[[CostEstimator, Usage], AbstractAsyncContextManager[RequestCost]]
"""Counts a request of at most such a usage before it is made; what is entered receives what it actually cost.
It raises ``JudgeOverBudget`` if there is no room for it."""


@dataclass(slots=True, kw_only=True)
class BudgetGuard:
    """Guards one budget, shared by all that spend from it, over a `SpendLedger`."""

    budget: Budget
    ledger: SpendLedger
    clock: Clock
    share_to_sample: float = 1.0
    """The share of traffic with which the budget lasts, as last computed."""
    _announced: int = 0
    """Attempts without a request so far."""
    _away: int = 0
    """Requests under way. They end independently of others."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced whenever a reservation is settled."""

    @asynccontextmanager
    async def spending(self, cost_estimator: CostEstimator, largest: Usage) -> AsyncIterator[RequestCost]:
        """Count an attempt before it is made; the yielded cost receives what it actually cost.

        If the cost stays unknown (time-out, cancellation), the estimate stays counted.

        Raises:
            OverBudget: it would exceed a limit, even if everything under way cost nothing.
            BudgetUnavailable: it cannot be counted, so it is not made.
        """
        estimate = cost_estimator.estimate(largest)
        first = await self._first(estimate)
        request_cost = _ReservedCost(guard=self, cost_estimator=cost_estimator, first=first)
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

    async def status(self) -> BudgetStatus:
        """Return what was spent in the current windows.

        Raises what the ledger raises.
        """
        return await self.ledger.status(self.budget, now_ns=self.clock.now_ns())

    async def find_share(self) -> float:
        """Compute the share of traffic, from 0 to 1, with which the budget lasts for day and month.

        Raises what the ledger raises.
        """
        self.share_to_sample = (await self.status()).share_to_sample(self.clock.now_ns())
        return self.share_to_sample

    async def settle(self, reservation: Reservation, actual: Spend | None, *, was_away: bool) -> None:
        """Replace an estimate by the actual cost, if it is known, and wake the waiting attempts."""
        try:
            if actual is not None:
                await self.ledger.settle(reservation, actual)
        finally:
            self._away -= was_away
            self._announced -= not was_away
            settled, self._settled = self._settled, asyncio.Event()
            settled.set()

    def begin(self) -> None:
        """Record that an announced attempt makes its first request."""
        self._announced -= 1
        self._away += 1

    async def _reserve(self, estimate: Spend) -> Reservation:
        now_ns = self.clock.now_ns()
        answer = await self.ledger.reserve(self.budget, estimate, now_ns=now_ns)
        if isinstance(answer, ExceededLimit):
            raise OverBudget(self.budget, answer)
        return answer

    async def _first(self, estimate: Spend) -> Reservation:
        while True:
            settled = self._settled
            try:
                return await self._reserve(estimate)
            except OverBudget:
                if not self._announced and not self._away and not settled.is_set():
                    raise
            # Requests under way are counted by estimate: they may leave room, or have left some since.
            # The ledger answers in the order of its decisions, so admitted attempts are already under way.
            await settled.wait()

    async def further(self, estimate: Spend) -> Reservation:
        """Count one more request of an attempt that has begun.

        It waits only for requests, which always end: an attempt that has not begun may be waiting for this
        one.

        Raises:
            JudgeOverBudget: the budget has no room for it.
        """
        while True:
            settled = self._settled
            try:
                reservation = await self._reserve(estimate)
            except OverBudget:
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
class _ReservedCost(RequestCost):
    """The cost of an attempt at a `BudgetGuard`."""

    guard: BudgetGuard
    cost_estimator: CostEstimator
    first: Reservation
    """For its first request, or for the whole attempt."""
    is_begun: bool = False

    @asynccontextmanager
    async def request(self, call: JudgeCall) -> AsyncIterator[None]:
        is_first, self.is_begun = not self.is_begun, True
        if is_first:
            self.guard.begin()
            reservation = self.first
        else:
            reservation = await self.guard.further(self.cost_estimator.expected_of(call))
        try:
            yield
        finally:
            self.note(call)
            actual = self.cost_estimator.actual_of(call, reservation.estimate, is_first=is_first)
            await self.guard.settle(reservation, actual, was_away=True)

    async def close(self) -> None:
        """Settle an attempt whose judge reported no requests."""
        if self.is_begun:
            return
        estimate = self.first.estimate
        actual = None if self.usage is None else self.cost_estimator.actual(self.usage, estimate)
        await self.guard.settle(self.first, actual, was_away=False)


def _amounts(exceeded: ExceededLimit) -> str:
    """Describe what is spent of a limit, and what the next request may take."""
    unit = exceeded.limit.rpartition("_")[2]
    parts = (exceeded.spent, exceeded.most, exceeded.wanted)
    spent, most, wanted = (f"${part / NANO:,.4f}" if unit == "usd" else f"{part:,}" for part in parts)
    what = "" if unit == "usd" else f" {unit}"
    return f"{spent} of {most}{what} are spent, and the next request may take {wanted}"


ReplyT = TypeVar("ReplyT", bound=BaseModel)

_BYTES_A_TOKEN: Final = 2


def budgeted(judge: Judge, spenders: Sequence[Spending], price: Price | None) -> Judge:
    """Let a request reach the judge only if it was counted everywhere.

    ``spenders`` is read at each request, so it may be filled later.
    """
    return _BudgetedJudge(judge, spenders, CostEstimator(price=price))


def budgeted_embedder(embedder: Embedder, spenders: Sequence[Spending], price: Price | None) -> Embedder:
    """Let a request reach the embedder only if it was counted everywhere."""
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
    spenders: Sequence[Spending], cost_estimator: CostEstimator, largest: Usage
) -> AsyncIterator[list[RequestCost]]:
    """Count a request everywhere, and let them watch its HTTP requests."""
    async with AsyncExitStack() as counted:
        request_costs = [
            await counted.enter_async_context(spending(cost_estimator, largest)) for spending in spenders
        ]
        with watched_by(*(cost.request for cost in request_costs)):
            yield request_costs


class _BudgetedJudge(JudgeLayer):
    def __init__(self, judge: Judge, spenders: Sequence[Spending], cost_estimator: CostEstimator) -> None:
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
        self, embedder: Embedder, spenders: Sequence[Spending], cost_estimator: CostEstimator
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
