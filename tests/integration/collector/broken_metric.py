"""A metric that some answers break: name it as ``BROKEN`` in ``evaluate.metrics``.

Answers that say BREAK raise; those that say WAIT are never measured; those that say KILL take
the process with them, as running out of memory does.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final

from ragtrace.metrics.session import StepSession
from ragtrace.model import Direction, MetricOutcome, MetricResult, RagRecord
from ragtrace.ports import Metric

BROKEN: Final = f"{__name__}:Broken"


class Broken(Metric):
    """Breaks where the answer asks for it, and else gives every answer its best score."""

    name = "broken"
    profile = "ragtrace-tests"
    version = "1"
    threshold = 0.5
    direction = Direction.HIGHER_IS_BETTER

    def __init__(self, *, threshold: float | None = None) -> None:
        pass

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricOutcome:
        answer = record.answer or ""
        if "BREAK" in answer:
            raise ValueError(answer)
        if "WAIT" in answer:
            await asyncio.Event().wait()
        if "KILL" in answer:
            os.kill(os.getpid(), signal.SIGKILL)
        return MetricResult(
            metric=self.name,
            profile=self.profile,
            score=1.0,
            threshold=self.threshold,
            direction=self.direction,
            evaluator_version=self.version,
        )
