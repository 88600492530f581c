"""Find stored traces that no stage has, and assemble them, whatever lost them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ragtrace_collector.assemble.open_traces import Assembly
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


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
                "%d stored traces were lost by the pipeline and are assembled now: please report this",
                len(lost),
                extra=event("traces_swept", number=len(lost)),
            )
        return False
