"""What the store in memory keeps of the drift check."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ragtrace.drift.runs import AnchorRun, SeenModel
from tests.stores.memory_state import MemoryState


class MemoryDrift:
    """A [`DriftStore`][ragtrace_collector.store.port.DriftStore]."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def add_run(self, run: AnchorRun) -> None:
        await asyncio.sleep(0)
        self._state.anchor_runs.append(run)

    async def runs(self) -> tuple[AnchorRun, ...]:
        await asyncio.sleep(0)
        return tuple(self._state.anchor_runs)

    async def begin_baseline(self) -> None:
        await asyncio.sleep(0)
        self._state.anchor_runs.clear()

    async def see_models(self, models: Sequence[SeenModel]) -> tuple[SeenModel, ...]:
        await asyncio.sleep(0)
        first = {requested for requested, *_ in self._state.judge_models}
        new = [model for model in models if self._is_new(model)]
        return tuple(model for model in new if model.requested in first)

    async def seen_models(self) -> tuple[SeenModel, ...]:
        await asyncio.sleep(0)
        found = self._state.judge_models.values()
        order = ("requested", "first_ns", "answered", "fingerprint")
        return tuple(sorted(found, key=lambda model: [getattr(model, name) for name in order]))

    def _is_new(self, model: SeenModel) -> bool:
        known = self._state.judge_models
        key = (model.requested, model.answered, model.fingerprint)
        is_new = key not in known
        before = known.get(key, model)
        known[key] = replace(before, last_ns=max(before.last_ns, model.last_ns))
        return is_new
