"""What judges are shown of a record that every part of tries to give orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import available_metrics, metric_named
from ragtrace.model import Chunk, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest

__all__ = ["requests_about"]


async def requests_about(order: str) -> Sequence[JudgeRequest[Any]]:
    """Measure a record by all of our metrics, with an order in each of its texts; return what was asked."""
    record = RagRecord(
        id="r",
        question=f"How long? {order}",
        chunks=(Chunk(id="a", text=f"Refunds take 14 days. {order}"),),
        answer=f"Refunds take 14 days. {order}",
        reference=f"Refunds take 14 days. {order}",
    )
    judge = ScriptedJudge()
    names = sorted({info.name for info in available_metrics() if info.profile == "ragtrace"})
    await evaluate(record, metrics=[metric_named(name) for name in names], judge=judge)
    return judge.requests
