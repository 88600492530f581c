"""The outbox: items on their way to one sink, until the sink has accepted them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.errors import SendError, SendRefused, SendRejected, SendRetryable, SendUnconfirmed
from ragtrace.http import Backoff
from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.store.records import OutboxItem
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_BACKOFF: Final = Backoff(longest_wait_s=60.0)
"""Of one sink, which gets one request at a time."""
_GATHER_S: Final = 0.1
MOST_UNREADABLE: Final = 5
"""After this many unreadable responses in a row, another attempt is not worth the duplicates it may make."""
_ALONE_AFTER_DOUBT: Final = 1_000


@dataclass(slots=True, kw_only=True)
class DeliverStage:
    """Sends outbox items to one sink, in order, until the sink has accepted them."""

    store: Store
    sink: SpanSink
    endpoint: str
    """The sink's name in the outbox."""
    counters: Counters
    clock: Clock
    most_at_once: int = 64
    most_bytes: int = 2 << 20
    _failures: int = 0
    """Failed deliveries in a row."""
    _resume_ns: int = 0
    _is_behind: bool = False
    """Whether a full batch was waiting."""
    _alone: int = 0
    """How many items are still sent one by one before they are batched again."""
    _refused: int = 0
    """Items that the sink refused for good since the start: logged at 1, 10, 100 and so on."""
    _unreadable: int = 0
    """Successful responses in a row that could not be read."""
    _is_doubted: bool = False
    """Whether that was logged."""

    async def turn(self) -> bool:
        """Deliver what is waiting, then wait for more items: a request costs more than its items."""
        may_be_more = await self.step()
        if may_be_more and not self._is_behind:
            await asyncio.sleep(_GATHER_S)
        return may_be_more

    async def step(self) -> bool:
        """Deliver what is waiting; say whether more may be."""
        if self.clock.now_ns() < self._resume_ns:
            return False
        waiting = await self.store.outbox_items(self.endpoint, self.most_at_once, most_bytes=self.most_bytes)
        size = sum(len(outbox_item.payload) for outbox_item in waiting)
        self._is_behind = len(waiting) == self.most_at_once or 2 * size > self.most_bytes
        if self._alone:
            return bool(waiting) and await self._deliver_each(waiting)
        return bool(waiting) and await self._deliver(waiting)

    async def _deliver(self, batch: Sequence[OutboxItem]) -> bool:
        # Concatenated serialized protobuf messages of one type are their merge.
        payload = b"".join(outbox_item.payload for outbox_item in batch)
        try:
            await self.sink.send(payload)
        except SendRetryable as exc:
            self._back_off(exc, exc.retry_after_s)
            return False
        except SendUnconfirmed as exc:
            return await self._doubt(batch, exc)
        except SendRefused as exc:  # keep the items until someone fixes it
            self._back_off(exc)
            return False
        except SendRejected as exc:
            self._unreadable = 0
            if exc.partial:
                self._suspect(exc)
            return await (self._deliver_each(batch) if len(batch) > 1 else self._reject(batch, exc))
        except Exception:  # no sink should raise it: the stage logs it and tries again each second
            self._rest(None)
            raise
        self._unreadable = 0
        await self._delivered(batch, Counts.ITEMS_DELIVERED)
        return True

    async def _deliver_each(self, batch: Sequence[OutboxItem]) -> bool:
        """Deliver each item alone, so that one bad span neither fails the others nor hides among them."""
        for outbox_item in batch:
            if not await self._deliver([outbox_item]):
                return False
            self._alone = max(0, self._alone - 1)
        return True

    def _suspect(self, exc: SendRejected) -> None:
        """Send items one by one from now on, until many in a row were accepted.

        The sink doesn't say which items it refused. So the items of this batch are sent once more, one by
        one, and the sink gets the accepted ones twice. That happens once, not for each batch.
        """
        self.counters.add(Counts.DELIVERIES_PARTIAL)
        if not self._alone:
            log.error(
                "%s accepted only a part (%s): items are sent one by one until it has accepted %d in a row",
                self.sink.name,
                exc,
                _ALONE_AFTER_DOUBT,
                extra=event("sink_took_a_part"),
            )
        self._alone = _ALONE_AFTER_DOUBT

    async def _reject(self, batch: Sequence[OutboxItem], exc: SendRejected) -> bool:
        await self.store.reject(batch, reason=str(exc), now_ns=self.clock.now_ns())
        self.counters.add(Counts.ITEMS_REJECTED)
        self._refused += 1
        if _is_power_of_ten(self._refused):
            log.error(
                "%s refused a request for good, %s since the start: %s",
                self.sink.name,
                "once" if self._refused == 1 else f"{self._refused} times",
                exc,
                extra=event("sink_refused"),
            )
        return True

    async def _doubt(self, batch: Sequence[OutboxItem], exc: SendUnconfirmed) -> bool:
        """Send a batch again if the response was unreadable, but only a few times: each may duplicate it."""
        self.counters.add(Counts.DELIVERIES_UNREADABLE)
        self._unreadable += 1
        if exc.again and self._unreadable < MOST_UNREADABLE:
            self._back_off(exc)
            return False
        if not self._is_doubted:
            log.error(
                "%s reports success in a response that cannot be read (%s): its items count as unconfirmed",
                self.sink.name,
                exc,
                extra=event("sink_unreadable"),
            )
        self._is_doubted = True
        await self._delivered(batch, Counts.ITEMS_UNCONFIRMED, unconfirmed=str(exc))
        return True

    async def _delivered(
        self, batch: Sequence[OutboxItem], counted: Counts, *, unconfirmed: str = ""
    ) -> None:
        await self.store.delivered(batch, unconfirmed=unconfirmed)
        self._failures = 0
        self._is_doubted = bool(unconfirmed)
        self.counters.add(counted, len(batch))

    def _back_off(self, exc: SendError, after_s: float | None = None) -> None:
        if self._failures == 0:
            log.warning(
                "%s accepts no requests (%s); they are kept and sent later",
                self.sink.name,
                exc,
                extra=event("sink_away"),
            )
        self.counters.add(Counts.DELIVERIES_FAILED)
        self._rest(after_s)

    def _rest(self, after_s: float | None) -> None:
        delay_s = _BACKOFF.own_wait_s(self._failures) if after_s is None else after_s
        self._resume_ns = self.clock.now_ns() + int(min(delay_s, _BACKOFF.longest_wait_s) * 1e9)
        self._failures += 1


def _is_power_of_ten(number: int) -> bool:
    return str(number).strip("0") == "1"
