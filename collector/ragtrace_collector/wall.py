"""The wall of the budget: every attempt to ask a judge is counted before it is made, or is not made."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeTimeout
from ragtrace.judge import Price
from ragtrace.judge.replies import reply_schema
from ragtrace.model import Usage
from ragtrace.ports import Clock, JudgeRequest
from ragtrace_collector.budget import OverBudget, Purse, Refusal, Spend, Standing, Uncounted
from ragtrace_collector.operations.logs import event
from ragtrace_collector.store.budget import BudgetBook, Reservation
from ragtrace_collector.store.port import StoreUnavailable

__all__ = ["Bill", "Tariff", "Wall", "largest_usage"]

log = logging.getLogger("ragtrace.collector")

_BYTES_A_TOKEN: Final = 2
_MOST_EXCESS: Final = 64.0
"""More than a model that thinks needs: an endpoint that counts wrongly must not close the purse."""
_STANDING_NS: Final = 1_000_000_000
"""How old what is told of the spending may be."""


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
class Tariff:
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
        """Return what a request did cost: as estimated, where the endpoint does not say."""
        if not usage.calls:
            return Spend()
        if not usage.input_tokens:
            return Spend(calls=usage.calls, tokens=estimate.tokens, usd_nano=estimate.usd_nano)
        spend = self._spend(usage)
        if estimate.tokens:
            excess = self.excess * spend.tokens / estimate.tokens
            self.excess = min(_MOST_EXCESS, max(self.excess, excess))
        return spend

    def _spend(self, usage: Usage) -> Spend:
        usd = self.price.cost_usd(usage) if self.price else 0.0
        return Spend(
            calls=usage.calls,
            tokens=usage.input_tokens + usage.output_tokens,
            usd_nano=math.ceil(usd * 1e9),
        )


@dataclass(slots=True)
class Bill:
    """What one request cost, as it becomes known."""

    usage: Usage | None = None
    """``None``: nobody knows, and the estimate stays counted."""


@dataclass(slots=True, kw_only=True)
class Wall:
    """One purse, and everyone who spends from it."""

    purse: Purse
    book: BudgetBook
    clock: Clock
    share_to_sample: float = 1.0
    """The share of traffic with which the spending lasts, as it was found last."""
    _under_way: int = 0
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced at each settlement."""
    _standing: Standing | None = None
    _standing_ns: int = 0

    @asynccontextmanager
    async def spending(self, tariff: Tariff, largest: Usage, *, share: float = 1.0) -> AsyncIterator[Bill]:
        """Count a request before it is made; its bill says afterwards what it did cost.

        What nobody knows (it timed out, or was interrupted) stays counted as it was estimated.

        Raises:
            OverBudget: a limit would be exceeded, even if all that is under way cost nothing.
            Uncounted: it cannot be counted, so it is not made.
        """
        reservation = await self._reserve(tariff.estimate(largest), share)
        bill = Bill()
        self._under_way += 1
        try:
            yield bill
        except JudgeTimeout:
            raise
        except JudgeError as failed:
            bill.usage = failed.usage
            raise
        finally:
            await self._settle(reservation, tariff, bill)

    async def standing(self) -> Standing:
        """Return what was spent in the windows of this moment, at most a second ago.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        now_ns = self.clock.now_ns()
        if self._standing is None or abs(now_ns - self._standing_ns) >= _STANDING_NS:
            self._standing = await self.book.standing(self.purse, now_ns=now_ns)
            self._standing_ns = now_ns
        return self._standing

    async def find_share(self) -> float:
        """Find the share of traffic, from 0 to 1, with which the spending lasts for day and month.

        Raises:
            StoreUnavailable: what was spent cannot be read.
        """
        self.share_to_sample = (await self.standing()).share_to_sample(self.clock.now_ns())
        return self.share_to_sample

    async def _reserve(self, estimate: Spend, share: float) -> Reservation:
        while True:
            settled = self._settled
            answer = await self._ask(estimate, share)
            if isinstance(answer, Reservation):
                return answer
            if not self._under_way and not settled.is_set():
                raise OverBudget(self.purse.name, answer)
            # What is under way is counted by its estimate and may leave room, or left some since we asked.
            # Whoever was let through is under way by now: the store answers in the order in which it decides.
            await settled.wait()

    async def _ask(self, estimate: Spend, share: float) -> Reservation | Refusal:
        try:
            return await self.book.reserve(self.purse, estimate, now_ns=self.clock.now_ns(), share=share)
        except StoreUnavailable as exc:
            raise Uncounted(f"the judge is not asked: {exc}", usage=Usage()) from exc

    async def _settle(self, reservation: Reservation, tariff: Tariff, bill: Bill) -> None:
        try:
            if bill.usage is not None:
                actual = tariff.actual(bill.usage, reservation.estimate)
                await self.book.settle(reservation, actual)
        except StoreUnavailable as exc:
            log.error("the estimate of a request stays counted: %s", exc, extra=event("estimate_kept"))  # noqa: TRY400
        finally:
            self._under_way -= 1
            settled, self._settled = self._settled, asyncio.Event()
            settled.set()
