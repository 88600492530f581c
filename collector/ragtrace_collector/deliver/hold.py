"""Hold mode: spans wait a limited time for their scores, which are then written on the answer span itself.

Held spans are in the store only, and are durable there before they are acknowledged. The store releases a
trace if it has nothing to judge, if all its answers have ended, or if one is postponed. This stage releases
traces that would wait too long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from ragtrace.ports import Clock
from ragtrace_collector.store.records import HoldMode
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLimits:
    """How long spans may be held, and how many bytes of them."""

    timeout_ns: int
    """Counted from the first span of a trace."""
    most_bytes: int
    """Of all held traces together. Beyond it, the traces held longest are released."""


@dataclass(slots=True, kw_only=True)
class HoldStage:
    """Decides whether traces are held, and releases traces held too long."""

    store: Store
    limits: HoldLimits
    is_judge_away: Callable[[], bool]
    """Whether the judge is unavailable, so that nothing held now would be judged in time."""
    counters: Counters
    clock: Clock
    released: asyncio.Event
    """Set when there is something new to forward."""
    _is_behind: bool = False
    """Whether answers are queued for longer than spans may be held, so that holding more is useless."""

    def holding(self) -> HoldMode:
        """Return how spans that come now are held."""
        return HoldMode.KNOWN if self._is_behind or self.is_judge_away() else HoldMode.NEW

    async def step(self) -> bool:
        """Release traces held too long, or all if the judge is unavailable; say whether any was released."""
        is_away = self.is_judge_away()
        reason = Counts.HOLDS_WITHOUT_JUDGE if is_away else Counts.HOLDS_TIMED_OUT
        return await self._release(0 if is_away else self.limits.timeout_ns, reason) > 0

    async def release_all(self) -> None:
        """Release all held traces, because the collector stops or hold mode was turned off."""
        while await self._release(0, Counts.HOLDS_ENDED_BY_STOP):
            pass

    async def _release(self, max_hold_ns: int, reason: Counts) -> int:
        now_ns = self.clock.now_ns()
        released = await self.store.release(
            before_ns=now_ns - max_hold_ns, now_ns=now_ns, most_bytes=self.limits.most_bytes
        )
        self._note_queue(released.queue_ns)
        self.counters.add(reason, released.overdue)
        self.counters.add(Counts.HOLDS_OVER_BYTES, released.surplus)
        number = released.overdue + released.surplus
        if number:
            self.released.set()
        return number

    def _note_queue(self, waited_ns: int) -> None:
        is_behind = waited_ns > self.limits.timeout_ns
        if is_behind and not self._is_behind:
            log.warning(
                "answers wait longer for the judge than `attach.hold_timeout`: "
                "no spans are held until it has caught up",
                extra=event("hold_behind"),
            )
        self._is_behind = is_behind
