"""What a process does with stored spans: a pipeline over one store, or over each shard that it owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ragtrace.answers.port import AnswerIndex
from ragtrace.budget import SpendLedger
from ragtrace.drift.runs import DriftState
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.judge.live import SharedEvaluator
from ragtrace_collector.operations.vitals import VitalStore
from ragtrace_collector.receive.intake import SpanIntake


class Work(Protocol):
    """The stages behind the receivers, and what the pages read of them."""

    @property
    def intake(self) -> SpanIntake:
        """Where the receivers hand requests to."""
        ...

    @property
    def spend_ledger(self) -> SpendLedger:
        """Where what judging costs is counted."""
        ...

    @property
    def reports(self) -> VitalStore:
        """What is read of answers and spans, for the pages."""
        ...

    @property
    def answers(self) -> AnswerIndex:
        """The index of judged answers."""
        ...

    async def prepare(self, config: CollectorConfig, evaluator: SharedEvaluator) -> Callable[[], None]:
        """Get ready to follow another configuration; the result does it.

        Raises:
            ConfigError: it cannot be used.
        """
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Run every stage until ``stop`` is set."""
        ...

    async def drain(self) -> None:
        """End what can be ended soon, before ``run`` is stopped."""
        ...

    async def left(self) -> dict[str, int]:
        """Count what is not finished, by where it waits; what is nought is left out."""
        ...

    async def drift_state(self) -> DriftState:
        """Return whether the judge is steady."""
        ...
