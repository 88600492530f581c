"""Who looks out for traces that end the process, or keep it from everything else: they are set aside."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ragtrace.ports import Clock
from ragtrace_collector.store.port import QuarantineReason, StoreUnavailable, WorkStore
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


class QuarantineCheck(NamedTuple):
    """At which of some traces to look, and how."""

    together: Collection[str]
    alone: Collection[str]
    """A process ended while it looked at these, and at others."""
    set_aside: Collection[str]
    """Not at these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Notes in the store which traces are looked at, before they are; and sets aside those that did harm."""

    store: WorkStore
    counters: Counters
    clock: Clock

    async def begin(self, trace_ids: Collection[str], *, max_crashes: int) -> QuarantineCheck:
        """Look at traces from now on, until they are decided or the look ends.

        A trace is set aside if ``max_crashes`` processes ended while they looked at it.

        Raises:
            StoreUnavailable: that cannot be noted.
        """
        known = await self.store.look(trace_ids)
        poison = {
            trace_id: each.poison or QuarantineReason.CRASHES
            for trace_id, each in known.items()
            if each.poison or each.crashes >= max_crashes
        }
        for trace_id, why in poison.items():
            await self.set_aside(trace_id, why, again=bool(known[trace_id].poison))
        return QuarantineCheck(
            together=[each for each in trace_ids if each not in known],
            alone=[each for each in known if each not in poison],
            set_aside=list(poison),
        )

    async def end(self, trace_ids: Collection[str]) -> None:
        """Look at traces no more. What cannot be noted counts as a crash, of which a trace may have a few."""
        with suppress(StoreUnavailable):
            await self.store.end_look(trace_ids)

    async def set_aside(self, trace_id: str, why: str, *, again: bool = False) -> None:
        """Look at a trace no more, in this process or in a later one."""
        ended = await self.store.set_aside(trace_id, poison=why, now_ns=self.clock.now_ns())
        self.counters.add(Counts.ANSWERS_FAILED, ended)
        if again:  # spans joined it, and it was told of before
            return
        self.counters.add(Counts.TRACES_POISON)
        log.error(
            "trace %s is set aside as poison (%s): `ragtrace why` says more",
            trace_id,
            why,
            extra=event("trace_set_aside", trace_id=trace_id, reason=why),
        )
