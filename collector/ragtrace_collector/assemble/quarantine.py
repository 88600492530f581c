"""Quarantine: traces that crash or block the process are set aside; traces that no stage has are found."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ragtrace.ports import Clock
from ragtrace_collector.assemble.open_traces import Assembly
from ragtrace_collector.ledger.outcomes import MOST_CRASHES
from ragtrace_collector.store.records import QuarantineReason, StoreUnavailable
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


class QuarantineCheck(NamedTuple):
    """Which traces to read, and how."""

    together: Collection[str]
    alone: Collection[str]
    """A process crashed while it read these and others."""
    set_aside: Collection[str]
    """Not to be read."""
    elsewhere: Collection[str]
    """Another process has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Notes in the store which traces are about to be read, and sets aside those that did harm."""

    store: Store
    counters: Counters
    clock: Clock

    async def begin(self, trace_ids: Collection[str]) -> QuarantineCheck:
        """Note that traces are being read, until their decision or ``end``.

        A trace is set aside if so many processes crashed while they read it.

        Raises:
            StoreUnavailable: that cannot be stored.
        """
        found = await self.store.look(trace_ids)
        known = {trace_id: each for trace_id, each in found.items() if each}
        poison = {
            trace_id: each.poison or QuarantineReason.CRASHES
            for trace_id, each in known.items()
            if each.poison or each.crashes >= MOST_CRASHES
        }
        for trace_id, why in poison.items():
            await self.set_aside(trace_id, why, again=bool(known[trace_id].poison))
        return QuarantineCheck(
            together=[trace_id for trace_id in trace_ids if trace_id not in found],
            alone=[trace_id for trace_id in known if trace_id not in poison],
            set_aside=list(poison),
            elsewhere=found.keys() - known.keys(),
        )

    async def end(self, trace_ids: Collection[str]) -> None:
        """Note that traces were read. If that cannot be stored, it counts as a crash; a few are allowed."""
        with suppress(StoreUnavailable):
            await self.store.end_look(trace_ids)

    async def set_aside(self, trace_id: str, why: str, *, again: bool = False) -> None:
        """Never read a trace again, in this process or a later one."""
        ended = await self.store.set_aside(trace_id, poison=why, now_ns=self.clock.now_ns())
        self.counters.add(Counts.ANSWERS_FAILED, ended)
        if again:  # spans joined it, and it was logged before
            return
        self.counters.add(Counts.TRACES_POISON)
        log.error(
            "trace %s is set aside as poison (%s): `ragtrace why` says more",
            trace_id,
            why,
            extra=event("trace_set_aside", trace_id=trace_id, reason=why),
        )


@dataclass(slots=True, kw_only=True)
class Sweeper:
    """Compares the undecided traces of the store with the open ones."""

    store: Store
    assembly: Assembly
    counters: Counters
    _unowned: frozenset[str] = frozenset()
    """As of the last turn, because a trace is committed a moment before it is announced."""

    async def step(self) -> bool:
        """Reopen the traces that no stage has had since the last turn."""
        undecided = await self.store.undecided()
        unowned = frozenset(trace_id for trace_id in undecided if not self.assembly.owns(trace_id))
        lost = unowned & self._unowned
        self._unowned = unowned - lost
        for trace_id in lost:
            self.assembly.add(trace_id, (), reopened=True)
        if lost:
            self.counters.add(Counts.TRACES_SWEPT, len(lost))
            log.warning(
                "%d stored traces that no stage had are assembled now",
                len(lost),
                extra=event("traces_swept", number=len(lost)),
            )
        return False
