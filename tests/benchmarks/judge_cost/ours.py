"""Judges the record by ragtrace with six metrics; prints one line of JSON.

``python -m tests.benchmarks.judge_cost.ours URL RECORDS CONCURRENCY [no-sentinels]``.
"""

from __future__ import annotations

import asyncio
import json
import sys

from ragtrace.judge import open_judge
from ragtrace.metrics import metric_named
from ragtrace.model import Chunk, MetricFailure, RagRecord
from ragtrace.pipeline.evaluation import evaluate
from tests.benchmarks.judge_cost import subject
from tests.benchmarks.judge_cost.peers import measure

METRIC_NAMES = (
    "faithfulness",
    "hallucination",
    "answer_relevance",
    "context_precision",
    "context_relevance",
    "context_recall",
)


async def run(url: str, records: int, concurrency: int) -> dict[str, float]:
    """Measure what ``peers.measure`` measures."""
    environ = {"OPENAI_API_KEY": "none"}
    judge = open_judge("openai:stub", base_url=url, environ=environ, max_concurrency=4 * concurrency)
    chunks = tuple(
        Chunk(id=f"chunk-{rank}", text=text, rank=rank) for rank, text in enumerate(subject.CHUNKS)
    )
    record = RagRecord(
        id="1",
        question=subject.QUESTION,
        chunks=chunks,
        answer=subject.ANSWER,
        reference=subject.REFERENCE,
    )

    metrics = [metric_named(name) for name in METRIC_NAMES]

    async def one() -> None:
        evaluation = await evaluate(record, metrics=metrics, judge=judge)
        for outcome in evaluation.outcomes:
            if isinstance(outcome, MetricFailure) or outcome.score is None:
                raise AssertionError(f"no score: {outcome}")

    try:
        return await measure(one, records, concurrency)
    finally:
        await judge.aclose()


if __name__ == "__main__":
    url, records, concurrency = sys.argv[1:4]
    print(json.dumps(asyncio.run(run(url, int(records), int(concurrency)))))
