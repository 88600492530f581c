"""What is kept of the drift check, and of the models that answered as judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ragtrace.drift.runs import AnchorRun, SeenModel


class DriftStore(Protocol):
    """Keeps runs of the anchors, and which models answered. None of it is content.

    Each method is one transaction. All raise StoreUnavailable.
    """

    async def add_run(self, run: AnchorRun) -> None:
        """Keep a run."""
        ...

    async def runs(self) -> tuple[AnchorRun, ...]:
        """Return the runs since the last new baseline, the oldest first."""
        ...

    async def begin_baseline(self) -> None:
        """Compare with none of the runs any more: the next complete one is the baseline."""
        ...

    async def see_models(self, models: Sequence[SeenModel]) -> tuple[SeenModel, ...]:
        """Note who answered; return the changes: who is new where others answered before."""
        ...

    async def seen_models(self) -> tuple[SeenModel, ...]:
        """Return all that ever answered, by requested model and time."""
        ...
