"""What judges are shown of a record that every part of tries to give orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.metrics.registry import BUILT_IN
from ragtrace.model import Chunk, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest


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
    await evaluate(record, metrics=[metric_named(name) for name in BUILT_IN], judge=judge)
    return judge.requests
