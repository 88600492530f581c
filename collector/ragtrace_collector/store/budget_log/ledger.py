"""The spend ledger over a log: a reservation is granted when the process reads its own record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from ragtrace.budget import (
    Budget,
    BudgetStatus,
    BudgetUnavailable,
    ExceededLimit,
    Reservation,
    Spend,
)
from ragtrace.budget.reserve import status
from ragtrace.model import Usage
from ragtrace_collector.store.budget_log.log import BudgetLog
from ragtrace_collector.store.budget_log.records import (
    CheckpointRecord,
    ReserveRecord,
    SettleRecord,
    encode_record,
)
from ragtrace_collector.store.budget_log.replica import (
    CHECKPOINT_EVERY,
    BudgetDecision,
    BudgetEntry,
    BudgetReplica,
    CheckpointRead,
    ForgottenWindow,
)
from ragtrace_collector.store.budget_log.table import RecordId
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_TIMEOUT_S: Final = 10.0
_OPEN_S: Final = 10.0
_SEND_AGAIN_S: Final = 1.0
_MOST_OPEN: Final = 10_000
"""Records on their way: more are not sent, so that brokers that answer nothing fill no memory."""
_CHECKPOINTS: Final = -1
"""The number of checkpoints, which count twice without harm."""
_NOT_READ: Final = "the log of the budget was not read to its end yet"
_NO_CHECKPOINT: Final = (
    "the beginning of the log of the budget was deleted and it has no checkpoint, so what was spent is not "
    "known: set `retention.ms` of its topic to -1; if another collector still counts, it writes a checkpoint "
    "soon; if none does, delete the topic and create it again, and counting begins at zero"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotCounted:
    """The answer to a reservation of which nobody can say whether it counts."""

    reason: str


_Answer = Reservation | ExceededLimit | ForgottenWindow | _NotCounted


@dataclass(slots=True, kw_only=True)
class _Settlement:
    """A settlement that was not read yet."""

    value: bytes
    is_read: asyncio.Future[None]
    is_sent: bool = False


@dataclass(slots=True, kw_only=True)
class BudgetLogCounts:
    """What the log of the budget had that it should not have."""

    skipped: int = 0
    """Messages that are not ours."""
    divergent: int = 0
    """Checkpoints that differ from what this process counted."""


@dataclass(slots=True, kw_only=True)
class LoggedBudget:
    """The `ragtrace.budget.SpendLedger` of many processes that share a log.

    Each applies the same rule in the order of the log, so all grant the same reservations: no limit is
    exceeded by any number of them. Its methods belong to the loop that ``open`` ran on.
    """

    budget_log: BudgetLog
    checkpoint_every: int = CHECKPOINT_EVERY
    """After so many records comes a checkpoint: the same number everywhere, so that all can compare it."""
    timeout_s: float = _TIMEOUT_S
    """How long a record may be on its way."""
    counts: BudgetLogCounts = field(default_factory=BudgetLogCounts)
    _process: str = field(default_factory=lambda: uuid4().hex)
    _number: int = 0
    _replica: BudgetReplica | None = None
    _has_reached_end: bool = False
    _brokers: str | None = "no broker has answered yet"
    """Why the log cannot be used."""
    _told: str | None = None
    _is_closed: bool = False
    _reserving: dict[int, asyncio.Future[_Answer]] = field(default_factory=dict)
    _given_up: dict[int, None] = field(default_factory=dict)
    """Reservations that nobody waits for: granted ones are settled at zero, as no request was made."""
    _settlements: dict[int, _Settlement] = field(default_factory=dict)
    _again: asyncio.TimerHandle | None = None
    _before_last_checkpoint: int | None = None
    _looked: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, *, wait_s: float = _OPEN_S) -> None:
        """Read the log to its end, in the background if that takes longer: ``trouble`` says why."""
        self.budget_log.start(self)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._looked.wait()

    @property
    def trouble(self) -> str | None:
        """Why nothing can be reserved now, in one sentence; ``None`` if something can."""
        if self._is_closed:
            return "the log of the budget is closed"
        replica = self._replica
        if replica is not None and replica.newer is not None:
            return str(replica.newer)
        if self._brokers is not None:
            return f"the log of the budget cannot be used: {self._brokers}"
        if replica is None or not self._has_reached_end:
            return _NOT_READ
        return _NO_CHECKPOINT if replica.needs_checkpoint else None

    async def reserve(
        self, budget: Budget, estimate: Spend, *, now_ns: int, share: float = 1.0
    ) -> Reservation | ExceededLimit:
        """Count a request that is about to be made, or return the limit that forbids it.

        Raises:
            BudgetUnavailable: it cannot be counted, so it must not be made.
        """
        try:
            answer = await self._decide(budget, estimate, now_ns=now_ns, share=share)
        except StoreUnavailable as exc:
            raise BudgetUnavailable(f"the judge is not asked: {exc}", usage=Usage()) from exc
        return replace(answer, budget=budget) if isinstance(answer, Reservation) else answer

    async def settle(self, reservation: Reservation, actual: Spend) -> None:
        """Count what was spent instead of the estimate, which stays counted if that fails.

        While brokers are away it returns after a while, and the record is sent when they are back.
        """
        settlement = self._settle(reservation, actual)
        if settlement is None:
            return
        await asyncio.wait([settlement.is_read], timeout=self.timeout_s if self._brokers is None else 0)
        if not settlement.is_read.done():
            log.warning(
                "what a request cost is counted when the brokers answer; until then its estimate counts",
                extra=event("settlement_waits"),
            )

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        """Return what was spent in the current windows, as far as this process has read.

        Raises:
            StoreUnavailable: the log was not read yet, or cannot be.
        """
        replica = self._replica
        if replica is None or not self._has_reached_end or replica.needs_checkpoint or replica.newer:
            raise StoreUnavailable(self.trouble or "the log of the budget is read again")
        return status(replica.spend, budget, now_ns=now_ns)

    async def aclose(self) -> None:
        """Send what is on its way, then close."""
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        self._send_waiting()
        await self.budget_log.aclose()
        for number in list(self._reserving):
            self.lose(number, "the log of the budget is closed")
        for settlement in self._settlements.values():
            if not settlement.is_read.done():
                settlement.is_read.set_result(None)
        unsent = sum(not settlement.is_sent for settlement in self._settlements.values())
        if unsent:
            log.error(
                "the estimates of %d requests stay counted: the brokers did not answer before the end",
                unsent,
                extra=event("estimate_kept", requests=unsent),
            )

    def begin(self, first_offset: int) -> None:
        """Implement `BudgetLogReader`."""
        if self._replica is not None:
            log.warning(
                "the log of the budget is read from its beginning again: records were deleted before this "
                "process read them",
                extra=event("budget_log_read_again", offset=first_offset),
            )
        self._replica = BudgetReplica(first_offset, checkpoint_every=self.checkpoint_every)
        self._has_reached_end, self._before_last_checkpoint = False, None

    def read(self, entries: Sequence[BudgetEntry]) -> None:
        """Implement `BudgetLogReader`."""
        replica = self._replica
        assert replica is not None
        skipped, needed_checkpoint = replica.skipped, replica.needs_checkpoint
        for entry in entries:
            for result in replica.read(entry):
                if isinstance(result, BudgetDecision):
                    self._take(result)
                else:
                    self._take_checkpoint(result)
        if needed_checkpoint and not replica.needs_checkpoint:
            self._forget_unseen(replica)
        self._count_skipped(replica.skipped - skipped)
        if replica.newer is not None:
            self._stop_deciding(str(replica.newer))
        self.tell(None)

    def reach_end(self) -> None:
        """Implement `BudgetLogReader`."""
        self._has_reached_end = True
        self.tell(None)
        self._looked.set()

    def lose(self, number: int, reason: str) -> None:
        """Implement `BudgetLogReader`."""
        if number in self._reserving:
            self._answer(number, _NotCounted(reason=reason))
            self._note_given_up(number)
        elif number in self._settlements:
            self._settlements[number].is_sent = False
            self._send_again_later()

    def tell(self, trouble: str | None) -> None:
        """Implement `BudgetLogReader`."""
        self._brokers = trouble
        now = self.trouble
        if now in (self._told, _NOT_READ):
            return
        self._told = now
        if now is None:
            log.info("the budget is read from its log", extra=event("budget_available"))
        elif not self._is_closed:
            log.warning("no judge is asked: %s", now, extra=event("budget_unavailable"))

    async def _decide(
        self, budget: Budget, estimate: Spend, *, now_ns: int, share: float
    ) -> Reservation | ExceededLimit:
        if (trouble := self.trouble) is not None:
            raise StoreUnavailable(trouble)
        if len(self._reserving) + len(self._settlements) >= _MOST_OPEN:
            raise StoreUnavailable(f"{_MOST_OPEN} records for the log of the budget are on their way")
        id_ = self._next_id()
        record = ReserveRecord(id=id_, budget=budget, estimate=estimate, share=share, now_ns=now_ns)
        self.budget_log.append(id_.number, encode_record(record))
        future = self._reserving[id_.number] = asyncio.get_running_loop().create_future()
        is_taken = False
        try:
            await asyncio.wait([future], timeout=self.timeout_s)
            is_taken = future.done()
        finally:
            if not is_taken:
                self._give_up(id_.number, future)
        if not is_taken:
            self._doubt()
            raise StoreUnavailable(f"the log of the budget did not answer within {self.timeout_s:g} s")
        return self._usable(future.result())

    def _usable(self, answer: _Answer) -> Reservation | ExceededLimit:
        match answer:
            case _NotCounted(reason=reason):
                raise StoreUnavailable(f"the log of the budget cannot be used: {reason}")
            case ForgottenWindow():
                what = "this computer's clock is too far behind that of others who spend from the budget"
                raise StoreUnavailable(f"{what}: set it")
            case _:
                return answer

    def _give_up(self, number: int, future: asyncio.Future[_Answer]) -> None:
        """Let nobody wait for a reservation: it must not stay counted."""
        if self._reserving.pop(number, None) is not None:
            self._note_given_up(number)
        elif future.done() and isinstance(answer := future.result(), Reservation):
            self._settle(answer, Spend())

    def _note_given_up(self, number: int) -> None:
        self._given_up[number] = None
        if len(self._given_up) > _MOST_OPEN:
            del self._given_up[next(iter(self._given_up))]

    def _take(self, decision: BudgetDecision) -> None:
        if decision.id.process != self._process:
            return
        number, answer = decision.id.number, decision.answer
        if (settlement := self._settlements.pop(number, None)) is not None and not settlement.is_read.done():
            settlement.is_read.set_result(None)
        if answer is not None:
            self._answer(number, answer)
        if decision.is_checkpoint_due and self._has_reached_end:
            self._write_checkpoint()

    def _answer(self, number: int, answer: _Answer) -> None:
        future = self._reserving.pop(number, None)
        if future is not None:
            future.set_result(answer)
        elif number in self._given_up:
            del self._given_up[number]
            if isinstance(answer, Reservation):
                self._settle(answer, Spend())

    def _settle(self, reservation: Reservation, actual: Spend) -> _Settlement | None:
        """Send what a request cost; ``None`` if that is its estimate, or if it cannot be sent any more."""
        difference = actual - reservation.estimate
        if difference == Spend():
            return None
        if self._is_closed or len(self._settlements) >= _MOST_OPEN:
            why = "the log of the budget is closed" if self._is_closed else "too many wait for the brokers"
            log.error("the estimate of a request stays counted: %s", why, extra=event("estimate_kept"))
            return None
        id_ = self._next_id()
        record = SettleRecord(
            id=id_, budget=reservation.budget.name, windows=reservation.windows, difference=difference
        )
        settlement = _Settlement(
            value=encode_record(record), is_read=asyncio.get_running_loop().create_future()
        )
        self._settlements[id_.number] = settlement
        self._send_waiting()
        return settlement

    def _send_waiting(self) -> None:
        """Send the settlements that are not on their way."""
        self._again = None
        for number, settlement in self._settlements.items():
            if settlement.is_sent:
                continue
            try:
                self.budget_log.append(number, settlement.value)
            except StoreUnavailable:
                self._send_again_later()
                return
            settlement.is_sent = True

    def _send_again_later(self) -> None:
        if self._again is None and not self._is_closed:
            self._again = asyncio.get_running_loop().call_later(_SEND_AGAIN_S, self._send_waiting)

    def _doubt(self) -> None:
        self.tell("the brokers do not answer in time")
        self.budget_log.doubt()

    def _write_checkpoint(self) -> None:
        assert self._replica is not None
        assert self._replica.last_state is not None
        as_of, state = self._replica.last_state
        id_ = RecordId(process=self._process, number=0)
        with suppress(StoreUnavailable):  # the next one is written by whoever is next
            self.budget_log.append(
                _CHECKPOINTS, encode_record(CheckpointRecord(id=id_, as_of=as_of, state=state))
            )

    def _take_checkpoint(self, checkpoint: CheckpointRead) -> None:
        """Delete what is before the last but one: who reads behind the others finds what it needs."""
        if checkpoint.is_equal is False:
            self.counts.divergent += 1
            log.error(
                "a checkpoint of the budget differs from what this process counted: do all run the same "
                "release?",
                extra=event("budget_checkpoint_differs", as_of=checkpoint.as_of),
            )
        if not checkpoint.is_equal:
            return
        before, self._before_last_checkpoint = self._before_last_checkpoint, checkpoint.as_of
        if before is not None and before < checkpoint.as_of and checkpoint.id.process == self._process:
            self.budget_log.delete_before(before)

    def _forget_unseen(self, replica: BudgetReplica) -> None:
        """Let nobody wait for a record that is before the checkpoint: its answer was not seen here."""
        for number in [*self._reserving, *self._given_up]:
            if replica.has_read(self._id(number)):
                self._answer(number, _NotCounted(reason="its answer was deleted before it was read"))
        for number in [number for number in self._settlements if replica.has_read(self._id(number))]:
            if not (settlement := self._settlements.pop(number)).is_read.done():
                settlement.is_read.set_result(None)

    def _stop_deciding(self, reason: str) -> None:
        for number in list(self._reserving):
            self._answer(number, _NotCounted(reason=reason))
        self._looked.set()

    def _count_skipped(self, skipped: int) -> None:
        if skipped and not self.counts.skipped:
            log.warning(
                "the log of the budget has messages that ragtrace did not write: they are skipped, here and "
                "by all others; let nobody else write into its topic",
                extra=event("budget_log_foreign"),
            )
        self.counts.skipped += skipped

    def _next_id(self) -> RecordId:
        self._number += 1
        return self._id(self._number)

    def _id(self, number: int) -> RecordId:
        return RecordId(process=self._process, number=number)
