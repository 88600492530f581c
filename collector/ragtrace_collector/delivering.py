"""The outbox: parcels on their way to one sink, until the sink has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.errors import SendError, SendRefused, SendRejected, SendRetryable
from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.operations.logs import event
from ragtrace_collector.store.port import Parcel, WorkStore
from ragtrace_collector.telemetry import Counters, Counts

__all__ = ["Deliverer"]

log = logging.getLogger("ragtrace.collector")

_LONGEST_BACK_OFF_S: Final = 60.0
_GATHER_S: Final = 0.1


@dataclass(slots=True, kw_only=True)
class Deliverer:
    """Takes parcels from the outbox to one sink, in order, until the sink has them."""

    store: WorkStore
    sink: SpanSink
    endpoint: str
    """The sink's name in the outbox."""
    counters: Counters
    clock: Clock
    most_at_once: int = 64
    most_bytes: int = 2 << 20
    _failures: int = 0
    """Deliveries that failed since the last one that did not."""
    _resume_ns: int = 0
    _is_behind: bool = False
    """Whether as much was waiting as is sent at once."""

    async def turn(self) -> bool:
        """Deliver what is waiting, then let more come together: a request costs more than what is in it."""
        may_be_more = await self.step()
        if may_be_more and not self._is_behind:
            await asyncio.sleep(_GATHER_S)
        return may_be_more

    async def step(self) -> bool:
        """Deliver what is waiting; say whether more may be."""
        if self.clock.now_ns() < self._resume_ns:
            return False
        waiting = await self.store.parcels(self.endpoint, self.most_at_once, most_bytes=self.most_bytes)
        size = sum(len(parcel.payload) for parcel in waiting)
        self._is_behind = len(waiting) == self.most_at_once or 2 * size > self.most_bytes
        return bool(waiting) and await self._deliver(waiting)

    async def _deliver(self, batch: Sequence[Parcel]) -> bool:
        # Serialized protobuf messages of one type, put one after the other, are their merge.
        payload = b"".join(parcel.payload for parcel in batch)
        try:
            await self.sink.send(payload)
        except SendRetryable as exc:
            self._back_off(exc, exc.retry_after_s)
            return False
        except SendRefused as exc:  # a person will mend it, and nothing be lost until then
            self._back_off(exc)
            return False
        except SendRejected as exc:
            if not exc.partial or len(batch) == 1:
                return await self._isolate(batch, exc)
            # it does not say which of the parcels, and what it took must not be sent again
            self.counters.add(Counts.DELIVERIES_PARTIAL)
            log.error("%s took a part only: %s", self.sink.name, exc, extra=event("sink_took_a_part"))  # noqa: TRY400
        await self.store.delivered(batch)
        self._failures = 0
        self.counters.add(Counts.PARCELS_DELIVERED, len(batch))
        return True

    async def _isolate(self, batch: Sequence[Parcel], exc: SendRejected) -> bool:
        """One bad span must not take its neighbours along: deliver each alone."""
        if len(batch) > 1:
            for parcel in batch:
                if not await self._deliver([parcel]):
                    return False
            return True
        await self.store.reject(batch, reason=str(exc), now_ns=self.clock.now_ns())
        self.counters.add(Counts.PARCELS_REJECTED)
        log.error("%s refused spans for good: %s", self.sink.name, exc, extra=event("sink_refused"))
        return True

    def _back_off(self, exc: SendError, after_s: float | None = None) -> None:
        delay_s = after_s if after_s is not None else 0.5 * 2**self._failures
        self._resume_ns = self.clock.now_ns() + int(min(delay_s, _LONGEST_BACK_OFF_S) * 1e9)
        if self._failures == 0:
            log.warning(
                "%s does not take spans (%s); they are kept and sent later",
                self.sink.name,
                exc,
                extra=event("sink_away"),
            )
        self._failures = min(self._failures + 1, 10)
        self.counters.add(Counts.DELIVERIES_FAILED)
