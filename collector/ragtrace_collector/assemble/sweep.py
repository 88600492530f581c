"""Stored traces that no stage has: found and handed on, whatever lost them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ragtrace_collector.assemble.open_traces import Assembly
from ragtrace_collector.store.port import WorkStore
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


@dataclass(slots=True, kw_only=True)
class Sweeper:
    """Compares what the store has yet to see settled with what is waited for."""

    store: WorkStore
    assembly: Assembly
    counters: Counters
    _unowned: frozenset[str] = frozenset()
    """As of the last turn: what was committed a moment ago is announced a moment later."""

    async def step(self) -> bool:
        """Hand on the traces that nobody has had since the last turn."""
        undecided = await self.store.undecided()
        unowned = frozenset(trace_id for trace_id in undecided if not self.assembly.owns(trace_id))
        lost = unowned & self._unowned
        self._unowned = unowned - lost
        for trace_id in lost:
            self.assembly.add(trace_id, (), reopened=True)
        if lost:
            self.counters.add(Counts.TRACES_SWEPT, len(lost))
            log.warning(
                "%d stored traces were waited for by nobody, and are now: please report this",
                len(lost),
                extra=event("traces_swept", number=len(lost)),
            )
        return False
