"""Hold mode: spans wait for their scores, which then stand on the answer span itself, but never for long.

Held spans stand in the store alone, and are durable there before they are acknowledged. The store releases a
trace when there is nothing to judge in it, when all its answers have ended, or when one is postponed. This
stage releases those that would wait too long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from ragtrace.ports import Clock
from ragtrace_collector.store.port import HoldMode, WorkStore
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLimits:
    """How long, and how much, spans may be kept back."""

    timeout_ns: int
    """From the first span of a trace on."""
    most_bytes: int
    """Of all held traces together: beyond it, those held longest go on."""


@dataclass(slots=True, kw_only=True)
class HoldStage:
    """Decides whether traces are held, and ends what has lasted long enough."""

    store: WorkStore
    limits: HoldLimits
    is_judge_away: Callable[[], bool]
    """Whether nothing that is held now would be judged in time."""
    counters: Counters
    clock: Clock
    released: asyncio.Event
    """Set when there is something new to forward."""
    _is_behind: bool = False
    """Whether answers are queued for longer than spans may be held: more would be held for nothing."""

    def holding(self) -> HoldMode:
        """Say what becomes of spans that come now."""
        return HoldMode.KNOWN if self._is_behind or self.is_judge_away() else HoldMode.NEW

    async def step(self) -> bool:
        """Release what waited too long, or for a judge that is away; say whether there was anything."""
        is_away = self.is_judge_away()
        reason = Counts.HOLDS_WITHOUT_JUDGE if is_away else Counts.HOLDS_TIMED_OUT
        return await self._release(0 if is_away else self.limits.timeout_ns, reason) > 0

    async def release_all(self) -> None:
        """Release everything that is held, as the collector stops or no longer holds."""
        while await self._release(0, Counts.HOLDS_ENDED_BY_STOP):
            pass

    async def _release(self, patience_ns: int, reason: Counts) -> int:
        now_ns = self.clock.now_ns()
        released = await self.store.release(
            before_ns=now_ns - patience_ns, now_ns=now_ns, most_bytes=self.limits.most_bytes
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
                "answers wait longer for the judge than spans may wait for them (`attach.hold_timeout`): "
                "none are held until it has caught up",
                extra=event("hold_behind"),
            )
        self._is_behind = is_behind
